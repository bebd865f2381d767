"""A team's server behind the real `copilotd --stdio` and the real daemon (issue 9; case H28)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from copilotd.models.catalogue import embedded_folder
from tests.support.lsp_driver import LspProcess
from tests.support.openai_server import OpenAIServer
from tests.support.scripted import own_folder_environment

TOKENIZER = embedded_folder("target")
KEY = "sk-very-secret"
TEXT = "def total(items):\n    result = 0\n    "
URI = "file:///nowhere/a.py"


class Team:
    """A home whose daemon asks a server, and editors on it."""

    def __init__(self, home: Path, server: OpenAIServer, settings: str = "", **environ: str) -> None:
        home.mkdir(exist_ok=True, mode=0o700)
        (home / "config.toml").write_text(
            f'[daemon]\nbackend = "openai"\nendpoint = "{server.url}"\n{settings}', "utf-8"
        )
        self.home, self.server = home, server
        self.env = own_folder_environment(home) | environ

    @contextmanager
    def editor(self, folder: Path | None = None) -> Iterator[LspProcess]:
        with LspProcess(self.env) as editor:
            folders = [{"uri": folder.as_uri(), "name": folder.name}] if folder else None
            editor.initialize(workspaceFolders=folders)
            editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "ready")
            yield editor

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-P", "-m", "copilotd", *words]
        return subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=60, check=False)

    def left_behind(self) -> str:
        """Everything copilotd wrote into its home."""
        files = [file for file in self.home.rglob("*") if file.is_file() and file.name != "config.toml"]
        return "".join(file.read_text("utf-8", "replace") for file in files)


@contextmanager
def team(home: Path, server: OpenAIServer, settings: str = "", **environ: str) -> Iterator[Team]:
    made = Team(home, server, settings, **environ)
    try:
        yield made
    finally:
        made.run("stop")


def shown(items: list[dict]) -> str:
    return items[0]["insertText"] if items else ""


def test_h28_a_server_that_fails_in_every_way(tmp_path: Path) -> None:
    plan = ["429 Retry-After: 2", "500", "html", "nothing", "split", "stall", "reset", "good"]
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    with (
        # what is typed of the line is written again: the model begins with the line's indentation
        OpenAIServer("    return 'naïve 漢字'\n", plan=plan, key=KEY) as server,
        team(tmp_path / "home", server, COPILOTD_API_KEY=KEY, **proxies) as of,
        of.editor() as editor,
    ):
        editor.open(URI, TEXT)
        texts, waits, line = [], [], 3
        end = time.monotonic() + 60
        while time.monotonic() < end and not (texts and texts[-1] and len(server.asked) >= len(plan)):
            line += 1
            editor.change(URI, line, f"# {line}\n" * line + TEXT)  # a new place: nothing is remembered of it
            began = time.monotonic()
            texts.append(shown(editor.complete(URI, (line + 2, 4))))
            waits.append(time.monotonic() - began)
            time.sleep(max(0.0, 0.3 - waits[-1]))
        assert [asked.answered_as for asked in server.asked][: len(plan)] == plan
        assert max(waits) < 2.9  # the time it may take by the settings is 2 s
        assert server.asked[1].t - server.asked[0].t >= 2.0
        answers = [text for text in texts if text]
        assert len(answers) >= 2  # the split stream's and the last one's
        assert set(answers) == {"return 'naïve 漢字'"}
        assert len(editor.notifications("window/showMessage")) <= 1
        server.wait(lambda: server.asked[5].hung_up)  # the stalled one was let go
        assert KEY not in of.left_behind() + of.run("config").stdout + of.run("status").stdout
        assert "naïve" not in of.left_behind()


def test_a_wrong_key_is_said_once_and_mended_without_a_restart(tmp_path: Path) -> None:
    with (
        OpenAIServer("result", key=KEY) as server,
        team(tmp_path / "home", server) as of,
        of.editor() as editor,
    ):
        editor.open(URI, TEXT)
        for _ in range(3):
            assert editor.complete(URI, (2, 4)) == []
        [said] = editor.wait(lambda: editor.notifications("window/showMessage"))
        assert "api_key_file" in said["message"]
        assert "api_key_file" in of.run("status").stdout
        key = of.home / "key"
        key.write_text(KEY)
        key.chmod(0o600)
        with (of.home / "config.toml").open("a") as file:
            file.write(f'api_key_file = "{key}"\n')
        assert of.run("reload").returncode == 0
        editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "ready")
        assert shown(editor.complete(URI, (2, 4))) == "result"


@pytest.mark.parametrize("tokenizer", [None, TOKENIZER])
def test_typing_through_and_the_workspace_as_with_a_model_of_ones_own(
    tmp_path: Path, tokenizer: Path | None
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "prices.py").write_text("def gross_price(net, rate):\n    return net * (1 + rate)\n")
    uri = (folder / "a.py").as_uri()
    text = "from prices import gross_price\n\n\ndef total(items):\n    price = gross_price\n    \n"
    settings = f'endpoint_tokenizer = "{tokenizer}"\n' if tokenizer else ""
    with (
        OpenAIServer("return sum(items)\n\n\ndef other():\n    pass\n", tokenizer=tokenizer) as server,
        team(tmp_path / "home", server, settings) as of,
        of.editor(folder) as editor,
    ):
        editor.open(uri, text)
        assert shown(editor.complete(uri, (5, 4))) == "return sum(items)"  # the next definition is cut off
        asked = len(server.asked)
        for typed, character in enumerate("return s", 1):
            place = (5, 3 + typed)
            editor.change(uri, 1 + typed, (place, place, character))
            rest = shown(editor.complete(uri, (5, 4 + typed)))
            assert rest == "return sum(items)"[typed:]
        typed_through = [asked.body["prompt"] for asked in server.asked[asked:]]
        assert len(typed_through) <= 2  # work ahead at most, for the place where acceptance leads
        end = time.monotonic() + 20
        version, lines = 20, 6
        while "net * (1 + rate)" not in server.prompts()[-1]:
            assert time.monotonic() < end, "no snippet of the other file came"
            version, lines = version + 1, lines + 1
            editor.change(uri, version, text + "#\n" * lines)
            editor.complete(uri, (5, 4))
            time.sleep(0.2)
        assert "<|file_sep|>prices.py" in server.prompts()[-1]
        assert ids_or_text(server) is (list if tokenizer else str)
        status = of.run("status", "--json").stdout
        assert '"tokens": 0' in status.replace('"tokens":0', '"tokens": 0')
        for pid in processes(of.home):
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "libtorch" not in maps


def ids_or_text(server: OpenAIServer) -> type:
    return type(server.asked[-1].body["prompt"])


def processes(home: Path) -> list[str]:
    """Of everything started with this home."""
    mark = f"COPILOTD_HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(folder.name)
        except OSError:
            continue
    assert found
    return found


def test_a_failure_of_a_moment_is_no_error_of_the_daemons(tmp_path: Path) -> None:
    """Nobody is told, and `status` and `doctor` say nothing of it afterwards."""
    with (
        OpenAIServer("result", plan=["500", "good"]) as server,
        team(tmp_path / "home", server) as of,
        of.editor() as editor,
    ):
        editor.open(URI, TEXT)
        assert editor.complete(URI, (2, 4)) == []
        version = 1
        end = time.monotonic() + 30
        while shown(editor.complete(URI, (2, 4))) != "result":
            assert time.monotonic() < end
            version += 1
            editor.change(URI, version, TEXT)
            time.sleep(0.1)
        status = json.loads(of.run("status", "--json").stdout)
        assert (status["requests"]["empty"].get("away", 0) >= 1, status["last_error"]) == (True, "")


def test_what_the_user_overtakes_or_cancels_is_hung_up(tmp_path: Path) -> None:
    with (
        OpenAIServer("return total " * 9, plan=["slow"]) as server,
        team(tmp_path / "home", server, "[session]\nmax_latency_ms = 0\n") as of,
        of.editor() as editor,
    ):
        editor.open(URI, TEXT)
        first = editor.ask(URI, (2, 4))
        server.wait(lambda: server.asked)
        editor.notify("$/cancelRequest", {"id": first})
        assert editor.response(first)["error"]["code"] == -32800
        server.wait(lambda: server.asked[0].hung_up)
        second = editor.ask(URI, (1, 4))
        server.wait(lambda: len(server.asked) > 1)
        editor.ask(URI, (1, 5))
        assert "error" in editor.response(second)
        server.wait(lambda: server.asked[1].hung_up)


def test_the_embedded_pair_writes_while_the_server_is_away(tmp_path: Path) -> None:
    def script(prompt: str) -> str:
        return "served\n"

    with (
        OpenAIServer(script, plan=["404"]) as server,
        team(tmp_path / "home", server, 'fallback = "embedded"\n') as of,
        of.editor() as editor,
    ):
        editor.open(URI, "import os\n\nclass A:\n    def __init__(self, name):\n        self.name = ")
        items: list[dict] = []
        end = time.monotonic() + 60
        version = 1
        while not items:
            assert time.monotonic() < end, "the fallback wrote nothing"
            version += 1
            editor.change(
                URI, version, "import os\n\nclass A:\n    def __init__(self, name):\n        self.name = "
            )
            items = editor.complete(URI, (4, 20))
            time.sleep(0.1)
        assert shown(items) != "served"
        assert len(editor.notifications("window/showMessage")) == 1


def test_settings_that_would_leak_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with OpenAIServer("x") as server, team(tmp_path / "home", server) as of:
        (of.home / "config.toml").write_text(
            '[daemon]\nbackend = "openai"\nendpoint = "http://192.0.2.1:8000/v1"\n'
        )
        with LspProcess(of.env) as editor:
            editor.initialize()
            status = editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "failed")
            assert "allow_plaintext" in status["message"]
            editor.open(URI, TEXT)
            assert editor.complete(URI, (2, 4)) == []
