"""A real Neovim with the plugin of this repository, driven as its terminal would drive it.

    with Neovim(binary, environment, folder) as editor:
        editor.open("a.py")              # returns when the front is ready to complete
        editor.keys("odef add")
        assert editor.ghost("(a, b):")   # waits for it
        editor.keys("<Tab>")

`text()` is the buffer, `saved()` the file's bytes after `:write`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pynvim

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "editors" / "nvim"
DEADLINE = 30.0
"""seconds; Neovim itself waits 0.2 after a key"""
INIT = """
{before}
vim.opt.runtimepath:prepend('{plugin}')
vim.lsp.enable('copilotd')
require('copilotd').setup({options})
{more}
"""

T = TypeVar("T")


def lives(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


class Neovim:
    def __init__(
        self,
        binary: Path,
        environment: Mapping[str, str],
        folder: Path,
        *,
        options: str = "{}",
        before: str = "",
        more: str = "",
    ) -> None:
        """`options` are those of setup(); Lua `before` and `more` run around it. `folder` is the current one."""
        self.folder = folder
        self._home = Path(environment["COPILOTD_HOME"])
        init = Path(tempfile.mkstemp("-init.lua", dir=folder.parent)[1])
        init.write_text(INIT.format(plugin=PLUGIN, before=before, options=options, more=more))
        variables = [f"{name}={value}" for name, value in environment.items()]
        line = [str(binary), "--embed", "--clean", "-n", "-u", str(init)]
        self.nvim: Any = pynvim.attach("child", argv=["env", "-i", "-C", str(folder), *variables, *line])
        self.nvim.api.ui_attach(100, 30, {"rgb": True, "ext_linegrid": True})

    def __enter__(self) -> Neovim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        own = self.lua("return vim.fn.getpid()")
        processes = [own, *self.nvim.api.get_proc_children(own)]
        with suppress(OSError, EOFError):
            self.nvim.command("qall!")
        self.nvim.close()
        end = time.monotonic() + DEADLINE
        while any(map(lives, processes)):
            if time.monotonic() > end:
                raise AssertionError("Neovim does not leave, or its front outlives it")
            time.sleep(0.02)

    # ---- what a person does ------------------------------------------------------------------------------

    def open(self, name: str, *, ready: bool = True) -> None:
        """Edit a file; with `ready`, wait until the front and its daemon answer."""
        self.nvim.command(f"edit {name}")
        if ready:
            self.until(lambda: self.status().get("state") == "ready" and self.attached(), "never ready")

    def keys(self, keys: str) -> None:
        """As typed: `<Tab>`, `<Esc>`, `<lt>` for a real `<`."""
        self.nvim.input(keys)

    # ---- what is to be seen ------------------------------------------------------------------------------

    def text(self) -> str:
        return "\n".join(self.nvim.current.buffer[:])

    def saved(self) -> bytes:
        self.nvim.command("write")
        return Path(self.nvim.api.buf_get_name(0)).read_bytes()

    def cursor(self) -> tuple[int, int]:
        """line from 1, byte from 0"""
        row, column = self.nvim.current.window.cursor
        return row, column

    def shown(self) -> str:
        """The ghost text on screen now, "" if there is none."""
        namespace = self.nvim.api.get_namespaces().get("nvim.lsp.inline_completion")
        if namespace is None:
            return ""
        marks = self.nvim.api.buf_get_extmarks(0, namespace, 0, -1, {"details": True})
        texts = []
        for *_, details in marks:
            lines = [details.get("virt_text", []), *details.get("virt_lines", [])]
            texts += ["".join(chunk[0] for chunk in line) for line in lines]
        return "\n".join(texts)

    def visible(self) -> bool:
        return self.shown() != ""

    def screen(self) -> str:
        """All characters on the screen."""
        lua = "local rows = {} for row = 1, vim.o.lines do local cells = {} for column = 1, vim.o.columns do \
cells[column] = vim.fn.screenstring(row, column) end rows[row] = table.concat(cells) end \
return table.concat(rows, '\\n')"
        text: str = self.lua(lua)
        return text

    def ghost(self, expected: str) -> bool:
        """Wait until the ghost text is this; "" waits until there is none."""
        self.until(lambda: self.shown() == expected, f"no ghost {expected!r}")
        return True

    def until(self, holds: Callable[[], T], complaint: str) -> T:
        """Look again until it holds; what it gave then."""
        end = time.monotonic() + DEADLINE
        while True:
            if found := holds():
                return found
            if time.monotonic() > end:
                raise AssertionError(
                    f"{complaint}: ghost {self.shown()!r}, text {self.text()!r}, status {self.status()}, "
                    f"messages {self.messages()!r}"
                )
            time.sleep(0.02)

    def settled(self, seconds: float = 0.6) -> None:
        """Let pass what Neovim waits after a key, and an answer from memory. For things that must NOT come."""
        time.sleep(seconds)

    def messages(self) -> str:
        text: str = self.nvim.command_output("messages")
        return text

    def status(self) -> dict[str, Any]:
        return self.lua("return require('copilotd').status()") or {}

    def statusline(self) -> str:
        text: str = self.lua("return require('copilotd').statusline()")
        return text

    def attached(self) -> int:
        """Fronts of ours that serve the current buffer."""
        lua = "return #vim.lsp.get_clients({ bufnr = 0, name = 'copilotd' })"
        number: int = self.lua(lua)
        return number

    def lua(self, source: str, *arguments: Any) -> Any:
        return self.nvim.exec_lua(source, *arguments)

    def run(self, command: str) -> None:
        self.nvim.command(command)
