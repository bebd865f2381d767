"""What of a workspace reaches a prompt, the index and the log: H21 to H25 and H31 through the real program.

The index is read where the engine reads it, in the shared memory of the context process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from copilotd import models
from copilotd.context.index import ALIVE, LENGTH, START, IndexReader
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.e2e.test_daemon_and_front import status
from tests.e2e.test_workspace import index_process_of
from tests.support.lsp_driver import LspProcess, Place
from tests.support.scripted import ScriptedDaemon

TOKENIZER = Path(models.__file__).parent / "embedded" / "target"
SETTINGS = '[daemon]\nlog_level = "debug"\n[session]\nmax_latency_ms = 0\n'
PEM = "-----BEGIN RSA PRIVATE KEY-----\ncanary-pem\n-----END RSA PRIVATE KEY-----\n"


def fill(root: Path, files: dict[str, bytes | str]) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


class Scene:
    def __init__(self, daemon: ScriptedDaemon, editor: LspProcess, root: Path) -> None:
        self.daemon, self.editor, self.root = daemon, editor, root
        self._versions = iter(range(2, 1 << 30))

    def uri(self, path: str) -> str:
        return (self.root / path).as_uri()

    def wait(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + 60
        while not holds(found := status(self.daemon.env)):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found

    def indexed(self, files: int) -> dict[str, Any]:
        return self.wait(lambda found: found["index"]["files"] == files)

    def index(self) -> list[str]:
        """The texts that drafts may come from, of files and of buffers."""
        process = index_process_of(self.daemon.pid)
        for link in Path(f"/proc/{process}/fd").iterdir():
            if "copilotd-index" in str(link.readlink()):
                descriptor = os.open(link, os.O_RDONLY)
                reader = IndexReader(descriptor)
                os.close(descriptor)
                arrays = reader._arrays
                vocabulary = TokenizerVocabulary.from_folder(TOKENIZER)
                texts = [
                    vocabulary.decode(arrays.tokens[row[START] : row[START] + row[LENGTH]].tolist())
                    for row in arrays.files.tolist()
                    if row[ALIVE]
                ]
                del arrays
                reader.close()
                return texts
        raise AssertionError("no index")

    def until_indexed(self, *texts: str) -> None:
        """But for the blanks that `prompt` types at the end, as many as it takes."""
        end = time.monotonic() + 60
        while (found := sorted(text.rstrip(" ") for text in self.index())) != sorted(texts):
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def prompt(self, uri: str, place: Place, wanted: str = "") -> str:
        """The prompt of a completion there; snippets are chosen while others are asked for."""
        end = time.monotonic() + 30
        while True:
            before = self.daemon.starts()
            self.editor.change(uri, next(self._versions), ((999, 0), (999, 0), " "))  # nothing is recalled
            self.editor.complete(uri, place)
            prompt = self.daemon.prompts()[before]
            if wanted in prompt:
                return prompt
            assert time.monotonic() < end, prompt
            time.sleep(0.05)

    def written(self) -> str:
        """All that lies in the home folder of ours afterwards, but for the script's own records."""
        files = [path for path in self.daemon.home.rglob("*") if path.is_file()]
        return "".join(
            path.read_text(errors="replace") for path in files if not path.name.startswith("records")
        )


@contextmanager
def scene(tmp_path: Path, root: Path, *folders: Path, script: str = "x", **params: object) -> Iterator[Scene]:
    home = tmp_path / "home"
    with (
        ScriptedDaemon(home, script=script, tokenizer=str(TOKENIZER), settings=SETTINGS) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize(
            **({"workspaceFolders": [{"uri": one.as_uri(), "name": one.name} for one in folders]} | params)
        )
        editor.notified("copilotd/didChangeStatus", lambda told: told["state"] == "ready")
        yield Scene(daemon, editor, root)
        assert not editor.notifications("window/showMessage")


def test_h22_no_secret_reaches_a_prompt_the_index_or_a_file(tmp_path: Path) -> None:
    settings = 'import os\nPAY_KEY = os.environ["PAY_KEY"]  # plain-marker\n'
    app = "from settings import PAY_KEY\n\nPAY_KEY = PAY_KEY or \n"
    root = fill(
        tmp_path / "w",
        {
            ".env": "PAY_KEY=canary-env-1\n",
            ".env.local": "PAY_KEY=canary-env-2\n",
            "deploy/prod.env": "PAY_KEY=canary-env-3\n",
            ".dev.vars": "PAY_KEY=canary-vars\n",
            "certs/server.pem": PEM,
            "keys/id_ed25519": "canary-ssh\n",
            ".npmrc": "//reg/:_authToken=canary-npm\n",
            ".netrc": "machine h password canary-netrc\n",
            ".git/config": "url = https://u:canary-git@h/r\n",
            "ignored/local.py": 'PAY_KEY = "canary-ignored"\n',
            ".gitignore": "ignored/\n",
            "settings.py": settings,
        },
    )
    with scene(tmp_path, root, root) as of:
        of.indexed(2)
        for path in (".env", "deploy/prod.env", "certs/server.pem", "ignored/local.py"):
            of.editor.open(of.uri(path), (root / path).read_text())
        of.editor.open(of.uri("app.py"), app)
        of.until_indexed("ignored/\n", settings, app)
        asked = of.daemon.starts()
        assert of.editor.complete(of.uri(".env"), (0, 8)) == []
        assert of.editor.complete(of.uri("certs/server.pem"), (1, 3)) == []
        assert of.daemon.starts() == asked
        of.editor.change(of.uri(".env"), 2, ((0, 8), (0, 8), "canary-typed"))
        of.prompt(of.uri("app.py"), (2, 21))
        of.editor.notify("textDocument/didClose", {"textDocument": {"uri": of.uri(".env")}})
        of.prompt(of.uri("app.py"), (2, 21))
        empty = status(of.daemon.env)["requests"]["empty"]
        assert empty["secret"] == 2
        assert not [text for text in of.index() if "canary" in text]
        of.editor.shutdown()
        of.editor.exit_code()
        of.daemon.terminate()
        assert not [prompt for prompt in of.daemon.prompts() if "canary" in prompt]
        assert "copilotd" in of.written()
        assert "canary" not in of.written()


def test_h31_nothing_stands_twice_in_a_prompt(tmp_path: Path) -> None:
    old, new = "def old_name(): return 1\n", "def new_name(): return 1\n"
    app = "import util\nprint(util.)\n"
    root = fill(tmp_path / "w", {"lib/util.py": old, "app.py": "import util\n"})
    with scene(tmp_path, root, root, root / "lib") as of:
        of.indexed(2)
        of.editor.open(of.uri("lib/util.py"), new)
        of.editor.open(of.uri("app.py"), app)
        prompt = of.prompt(of.uri("app.py"), (1, 11), wanted="new_name")
        assert prompt.count("new_name") == 1
        assert "old_name" not in prompt
        assert prompt.count("import util") == 1
        of.until_indexed(old, "import util\n", new, app)
        removed = {"added": [], "removed": [{"uri": of.uri("lib"), "name": "lib"}]}
        of.editor.notify("workspace/didChangeWorkspaceFolders", {"event": removed})
        of.editor.notify("textDocument/didClose", {"textDocument": {"uri": of.uri("lib/util.py")}})
        assert of.prompt(of.uri("app.py"), (1, 11), wanted="old_name").count("old_name") == 1
        of.indexed(2)
        removed["removed"] = [{"uri": root.as_uri(), "name": "w"}]
        of.editor.notify("workspace/didChangeWorkspaceFolders", {"event": removed})
        of.indexed(0)


def test_h31_without_folders_only_open_buffers_are_used(tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"util.py": "def on_disk(): return 1\n"})
    with scene(tmp_path, root, workspaceFolders=None, rootUri=None) as of:
        of.editor.open("untitled:util.py", "def in_buffer(): return 1\n")
        of.editor.open(of.uri("app.py"), "import util\nprint(util.)\n")
        prompt = of.prompt(of.uri("app.py"), (1, 11), wanted="in_buffer")
        assert "on_disk" not in prompt
        assert status(of.daemon.env)["index"]["files"] == 0


@pytest.mark.parametrize("name", ["My Proj/café+1.py", "100%.py", "x#y?.py", "名.py"])
def test_h21_the_buffer_and_the_file_are_one_however_the_uri_is_spelled(tmp_path: Path, name: str) -> None:
    root = fill(tmp_path / "w", {name: "def old_name(): return 1\n"})
    with scene(tmp_path, root, root) as of:
        of.indexed(1)
        spelled = "file://" + str(root / name).replace("%", "%25")
        of.editor.open(spelled, "def new_name(): return 1\n")
        of.editor.open(of.uri("app.py"), "value = old_name() + new_name()\n")
        prompt = of.prompt(of.uri("app.py"), (0, 31), wanted="def new_name")
        assert prompt.count("def new_name") == 1
        assert "def old_name" not in prompt
        assert f"{name}\ndef new_name" in prompt, "the path stands whole before the text"


def test_h25_odd_files_hold_up_nothing(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "w",
        {
            "latin1.py": b'# caf\xe9\nNAME = "caf\xe9"\n',
            "blob.py": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
            "nul.py": b"A = 1\n\x00\nB = 2\n",
            "bom.py": b"\xef\xbb\xbfimport os\ndef bom(): return 1\n",
            "utf16.py": "x = 1\n".encode("utf-16"),
            os.fsdecode(b"caf\xe9.py"): "def odd(): return 1\n",
            "good.py": "def good(): return 1\n",
        },
    )
    os.mkfifo(root / "pipe.py")
    with scene(tmp_path, root, root) as of:
        found = of.indexed(2)
        skipped = {"binary": 3, "encoding": 1, "name": 1, "special": 1}
        assert found["index"]["skipped"] == skipped
        of.editor.open(of.uri("main.py"), "from bom import bom\nfrom good import good\n")
        prompt = of.prompt(of.uri("main.py"), (1, 21), wanted="def good")
        assert "def bom" in prompt
        for prompt in of.daemon.prompts():
            assert not set("\0\ufeff\ufffd") & set(prompt)
        assert "import os\ndef bom(): return 1\n" in of.index()
        log = Path(found["log_path"]).read_text()
        for name in ("latin1.py", "blob.py", "nul.py", "utf16.py", "pipe.py", "caf?.py"):
            assert log.count(f"not read: {root / name}") == 1, log
        assert "good" not in log


def test_h23_a_request_in_the_middle_of_a_checkout(tmp_path: Path) -> None:
    """Answered at once, which is here five times the case's second; then the index holds what lies on disk."""
    names = [f"f{number:02}.py" for number in range(20)]
    root = fill(tmp_path / "w", dict.fromkeys(names, "VALUE = 'main'\n"))
    with scene(tmp_path, root, root) as of:
        of.indexed(20)
        of.editor.open(of.uri("app.py"), "value = ")
        for content in ("other", "main", "FINAL"):
            for number, name in enumerate(names):
                written = root / (f"{name}.tmp" if number < 10 else name)
                if number >= 10:
                    written.unlink()
                written.write_text(f"VALUE = '{content}'\n")
                written.replace(root / name)
                if (content, number) == ("main", 10):
                    asked = time.monotonic()
                    assert of.editor.complete(of.uri("app.py"), (0, 8))
                    assert time.monotonic() - asked < 5
        of.until_indexed(*["VALUE = 'FINAL'\n"] * 20, "value =")


def test_h24_what_the_index_does_without_is_said_once_and_without_a_popup(tmp_path: Path) -> None:
    """By an index that is killed until it is given up; completion goes on."""
    root = fill(tmp_path / "w", {"a.py": "x = 1\n"})
    with scene(tmp_path, root, root) as of:
        of.indexed(1)
        end = time.monotonic() + 60
        while not (said := of.editor.notifications("window/logMessage")):
            assert time.monotonic() < end
            with suppress(AssertionError, OSError):
                os.kill(index_process_of(of.daemon.pid), signal.SIGKILL)
            time.sleep(0.1)
        assert ["copilotd reload" in message["message"] for message in said] == [True]
        of.editor.open(of.uri("app.py"), "value = ")
        assert of.editor.complete(of.uri("app.py"), (0, 8))
