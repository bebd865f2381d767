"""A real VS Code (code-server) with the packaged extension, in a real browser.

with VSCode(home_of_editors, vsix, environment, folder) as editor:
    editor.open("a.py")              # returns when the status bar says that copilotd is ready
    editor.type("def add")
    assert editor.ghost("(a, b):")   # waits for it
    editor.press("Tab")
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

PAGE = Path(__file__).with_name("vscode_page.cjs")
DEADLINE = 30.0
SETTINGS = {
    "chat.disableAIFeatures": True,
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.minimap.enabled": False,
    "editor.stickyScroll.enabled": False,
    "files.autoSave": "off",
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "security.workspace.trust.enabled": False,
}

MARK = "VSCODE_OF_TEST"
"""in the environment of all its processes"""

T = TypeVar("T")


def processes_with(variable: str) -> Iterator[int]:
    """Processes that have `NAME=value` in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


class VSCode:
    def __init__(
        self,
        home: Path,
        vsix: Path,
        environment: Mapping[str, str],
        folder: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        others: Mapping[str, Path] | None = None,
        size: tuple[int, int] = (1100, 600),
    ) -> None:
        """`others`: further extensions, folder name → folder, taken as they are."""
        self.folder = folder
        self._modules = home / "node_modules"
        self._size = size
        own = folder.parent / "vscode"
        (own / "user" / "User").mkdir(parents=True)
        (own / "user" / "User" / "settings.json").write_text(json.dumps({**SETTINGS, **(settings or {})}))
        (own / "config.yaml").write_text("auth: none\n")
        extensions = own / "extensions"
        extensions.mkdir()
        for name, other in (others or {}).items():
            shutil.copytree(other, extensions / name)
        # VS Code asks the login shell for the environment
        person = Path(environment["HOME"])
        person.mkdir(parents=True, exist_ok=True)
        (person / ".profile").write_text(f"export PATH={shlex.quote(environment['PATH'])}\n")
        node = self._modules / "node" / "bin"
        self._env = {
            **environment,
            "PATH": f"{node}{os.pathsep}{environment['PATH']}",
            "EXTENSIONS_GALLERY": '{"serviceUrl":""}',
            MARK: str(own),
        }
        self._line = [
            *(str(node / "node"), str(self._modules / "code-server" / "out" / "node" / "entry.js")),
            *("--config", str(own / "config.yaml"), "--user-data-dir", str(own / "user")),
            *("--extensions-dir", str(extensions)),
        ]
        self._log = (own / "log").open("wb")
        self._run([*self._line, "--install-extension", str(vsix)])
        # made anew, it lists the others too
        (extensions / "extensions.json").unlink(missing_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        serve = ["--auth", "none", "--bind-addr", f"127.0.0.1:{self._port}", "--disable-telemetry"]
        serve += ["--disable-update-check", "--disable-getting-started-override"]
        self._server = self._start([*self._line, *serve], stdin=subprocess.DEVNULL, stdout=self._log)
        browser = shutil.which("chromium", path=environment["PATH"]) or "chromium"
        self._page = self._start(
            [str(node / "node"), str(PAGE), str(self._modules), browser, str(own / "browser")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> VSCode:
        try:
            self._await_server()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        with suppress(AssertionError, OSError):
            self.ask("close")
        for process in (self._page, self._server):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        end = time.monotonic() + DEADLINE
        while left := list(processes_with(f"{MARK}={self._env[MARK]}")):
            # what has a process group of its own: the browser, the extension host; fronts leave by themselves
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < end, "VS Code does not leave"
            time.sleep(0.05)
        for stream in (self._page.stdin, self._page.stdout):
            assert stream is not None
            stream.close()
        self._log.close()

    # ---- what a person does ------------------------------------------------------------------------------

    def open(self, name: str, *, ready: bool = True, window: int = 0) -> None:
        """Open a file of the workspace, in window 0 or the next new one, the cursor at its end."""
        file = f"vscode-remote://127.0.0.1:{self._port}{self.folder / name}"
        payload = quote(json.dumps([["openFile", file]]))
        url = f"http://127.0.0.1:{self._port}/?folder={quote(str(self.folder))}&payload={payload}"
        self.ask("open", url=url, window=window, width=self._size[0], height=self._size[1])
        self.press("Control+End")
        if ready:
            self.status("copilotd")

    def use(self, window: int) -> None:
        """Bring a window to the front."""
        self.ask("use", window=window)

    def type(self, text: str, delay: int = 40) -> None:
        self.ask("type", text=text, delay=delay)

    def press(self, key: str) -> None:
        """`Tab`, `Escape`, `Control+ArrowRight`, …"""
        self.ask("press", key=key)

    def command(self, title: str) -> None:
        """From the command palette."""
        self.press("F1")
        self.until(lambda: self.look()["entries"], "no palette")
        self.type(title, delay=0)
        self.until(lambda: any(title in entry for entry in self.look()["entries"][:1]), f"no command {title}")
        self.press("Enter")

    def menu(self, choice: str = "") -> list[str]:
        """The entries behind the status bar; takes the one that holds `choice`."""
        self.ask("click", selector=".statusbar-item:has-text('copilotd') a")
        entries: list[str] = self.until(lambda: self.look()["entries"], "no menu")
        if choice:
            self.ask("click", selector=f".quick-input-widget .monaco-list-row:has-text('{choice}')")
        else:
            self.press("Escape")
        return entries

    # ---- what is to be seen ------------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """`ghost`, `status`, `notices`, `entries`, `tabs`, `sidebar`: what is on screen now"""
        found: dict[str, Any] = self.ask("look")
        return found

    def tabs(self) -> list[str]:
        """Names of the open tabs."""
        names: list[str] = self.look()["tabs"]
        return names

    def ghost(self, expected: str) -> bool:
        """Wait until the ghost text is this; "" waits until there is none."""
        self.until(lambda: self.look()["ghost"].rstrip() == expected.rstrip(), f"no ghost {expected!r}")
        return True

    def status(self, expected: str) -> bool:
        """Wait until the status bar says this."""
        self.until(lambda: self.look()["status"].strip() == expected, f"the status is not {expected!r}")
        return True

    def saved(self, name: str, expected: bytes | None = None) -> bytes:
        """The file's bytes once they are saved, and as expected."""
        self.press("Control+s")
        file = self.folder / name
        if expected is not None:
            self.until(
                lambda: file.read_bytes() == expected, f"not saved as {expected!r}: {file.read_bytes()!r}"
            )
        return file.read_bytes()

    def until(self, holds: Callable[[], T], complaint: str) -> T:
        end = time.monotonic() + DEADLINE
        while True:
            if found := holds():
                return found
            if time.monotonic() > end:
                self.shot(self.folder.parent / "failed.png")
                files = {file.name: file.read_bytes() for file in self.folder.iterdir() if file.is_file()}
                raise AssertionError(f"{complaint}: {self.look()}, {files}")
            time.sleep(0.05)

    def shot(self, path: Path) -> None:
        self.ask("shot", path=str(path))

    def ask(self, name: str, **words: Any) -> Any:
        assert self._page.stdin is not None
        assert self._page.stdout is not None
        self._page.stdin.write(json.dumps({"do": name, **words}).encode() + b"\n")
        self._page.stdin.flush()
        answer = json.loads(self._page.stdout.readline() or '{"error": "the browser has ended"}')
        if "error" in answer:
            raise AssertionError(f"{name}: {answer['error']}")
        return answer["ok"]

    # ---- processes ---------------------------------------------------------------------------------------

    def _run(self, line: list[str]) -> None:
        done = subprocess.run(line, env=self._env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self, line: list[str], stdin: int, stdout: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            line, env=self._env, stdin=stdin, stdout=stdout, stderr=self._log, start_new_session=True
        )

    def _await_server(self) -> None:
        end = time.monotonic() + DEADLINE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "code-server does not answer"
                time.sleep(0.05)
