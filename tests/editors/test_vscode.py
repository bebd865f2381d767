"""Real VS Code in a real browser, the packaged extension, real front and daemon; the model is scripted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.editors import ENVIRONMENT, ROOT, requests, status
from tests.support.scripted import ScriptedDaemon
from tests.support.vscode import VSCode

Start = Callable[..., VSCode]
Daemon = Callable[..., ScriptedDaemon]

PICTURE = ROOT / "editors" / "vscode" / "picture.png"
"""made anew with COPILOTD_PICTURES=1"""
SHAPES = """class Rectangle:
    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height

    def area(self) -> float:
        return self.width * self.height


class Box(Rectangle):
    def __init__(self, width: float, height: float, depth: float) -> None:
        super().__init__(width, height)
        self.depth = depth

    def base(self) -> float:
"""
BODY = "(a, b):\n    return a + b"
OTHER = "(*numbers):\n    return sum(numbers)"


def stop(env: dict[str, str]) -> None:
    line = [sys.executable, "-P", "-m", "copilotd", "stop"]
    subprocess.run(line, env=env, capture_output=True, timeout=120)


def test_ghost_text_appears_and_tab_takes_it(vscode: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY)
    (folder / "a.py").write_bytes(b"# sums\n")
    editor = vscode()
    editor.open("a.py")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.press("Tab")
    assert editor.ghost("")
    editor.saved("a.py", b"# sums\ndef add(a, b):\n    return a + b")
    assert editor.look()["notices"] == []
    editor.until(lambda: requests(model)["accepted"] == 1, "not reported")


def test_along_against_word_line_escape_and_undo(vscode: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY)
    (folder / "a.py").touch()
    editor = vscode()
    editor.open("a.py")
    editor.type("def add")
    assert editor.ghost(BODY)
    starts = model.starts()
    # along; VS Code closes the bracket itself, and the ghost text goes on inside it
    editor.type("(a, ")
    editor.until(lambda: editor.look()["ghost"].startswith("b"), "it does not stay")
    assert model.starts() == starts
    editor.press("Control+ArrowRight")
    editor.until(lambda: "return" in editor.look()["ghost"], "the rest is gone after a word")
    editor.press("Control+Alt+l")
    editor.saved("a.py", b"def add(a, b):\n")
    editor.until(lambda: editor.look()["ghost"].strip() == "return a + b", "the rest is gone after a line")
    editor.press("Escape")
    assert editor.ghost("")
    editor.press("Alt+Backslash")
    editor.until(lambda: editor.look()["ghost"].strip() == "return a + b", "it does not come when asked for")
    # where a line begins VS Code's Tab indents, which is typing along
    editor.press("Tab")
    assert editor.ghost("return a + b")
    editor.press("Tab")
    editor.saved("a.py", f"def add{BODY}".encode())
    editor.press("Control+z")
    editor.saved("a.py", b"def add(a, b):\n    ")
    # against
    editor.type("# x")
    editor.until(lambda: model.starts() > starts, "not asked anew")


def test_a_wish_brings_others_and_keys_go_through_them(vscode: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY, samples=[BODY, OTHER])
    (folder / "a.py").touch()
    editor = vscode()
    editor.open("a.py")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.press("Alt+]")
    assert editor.ghost(OTHER)
    editor.press("Alt+[")
    assert editor.ghost(BODY)
    editor.press("Alt+]")
    assert editor.ghost(OTHER)
    editor.press("Tab")
    editor.saved("a.py", f"def add{OTHER}".encode())
    editor.until(lambda: requests(model)["accepted"] == 1, "not reported")


def test_brackets_and_characters_outside_ascii(vscode: Start, daemon: Daemon, folder: Path) -> None:
    daemon(script="値段(b) 😀)")
    (folder / "a.py").touch()
    editor = vscode()
    editor.open("a.py")
    editor.type("名前 = '😀👩‍👩‍👧' + f(")
    editor.until(lambda: "値段(b) 😀" in editor.look()["ghost"], "no ghost")
    editor.press("Tab")
    editor.saved("a.py", "名前 = '😀👩‍👩‍👧' + f(値段(b) 😀)".encode())


def test_a_file_with_carriage_returns(vscode: Start, daemon: Daemon, folder: Path) -> None:
    daemon(script=BODY)
    (folder / "a.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    editor = vscode()
    editor.open("a.py")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.press("Tab")
    editor.saved("a.py", b"a = 1\r\nb = 2\r\ndef add(a, b):\r\n    return a + b")
    editor.press("Control+z")
    editor.saved("a.py", b"a = 1\r\nb = 2\r\ndef add")


def test_two_windows_and_the_daemon_dies(vscode: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY)
    (folder / "a.py").touch()
    (folder / "b.py").touch()
    editor = vscode()
    editor.open("a.py")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.open("b.py", window=1)
    editor.type("def add")
    assert editor.ghost(BODY)
    assert len(model.living()) == 1
    editor.press("Enter")
    model.restart()
    editor.type("def mul")

    def ghost() -> bool:
        editor.type("t")
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if editor.look()["ghost"].rstrip() == BODY:
                return True
        return False

    editor.until(ghost, "it does not come back")
    assert editor.look()["notices"] == []
    editor.use(0)
    editor.press("Control+s")
    editor.press("Escape")
    editor.type("2")
    assert editor.ghost(BODY)
    assert editor.look()["notices"] == []


def test_the_status_bar(vscode: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY, loads=["hold"])
    (folder / "a.py").touch()
    (folder / "b.md").touch()
    editor = vscode(settings={"copilotd.languages_off": ["markdown"]})
    editor.open("a.py", ready=False)
    editor.status("copilotd: scripted: 1 of 100 MB")
    model.release_load()
    editor.status("copilotd")
    entries = " ".join(editor.menu("Pause"))
    for words in ("Explain", "Status", "Log", "Settings", "Restart"):
        assert words in entries
    editor.status("copilotd: paused")
    editor.menu("Resume")
    editor.status("copilotd")
    editor.ask("click", selector=".editor-instance .monaco-editor .view-lines")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.press("Escape")
    editor.menu("Explain")
    editor.until(lambda: "explain" in editor.tabs(), "nothing explained")
    editor.open("b.md")
    editor.type("def add")
    editor.status("copilotd: off")
    assert editor.look()["ghost"] == ""


RIVAL = """
const vscode = require('vscode')
exports.activate = () => vscode.languages.registerInlineCompletionItemProvider({ pattern: '**' }, {
  provideInlineCompletionItems: (document, position) => ['one', 'two'].map(
    (text) => new vscode.InlineCompletionItem(text, new vscode.Range(position, position))),
})
"""
RIVAL_MANIFEST = {
    "name": "vscode-tabby",
    "publisher": "TabbyML",
    "version": "1.0.0",
    "engines": {"vscode": "^1.91.0"},
    "main": "./main.js",
    "activationEvents": ["onStartupFinished"],
}


def test_beside_another_provider(vscode: Start, daemon: Daemon, folder: Path, tmp_path: Path) -> None:
    daemon(script="")
    (folder / "a.py").touch()
    other = tmp_path / "rival"
    other.mkdir()
    (other / "main.js").write_text(RIVAL)
    (other / "package.json").write_text(json.dumps(RIVAL_MANIFEST))
    editor = vscode(others={"tabbyml.vscode-tabby-1.0.0": other})
    editor.open("a.py", ready=False)
    editor.status("copilotd: beside Tabby")
    editor.type("x = ")
    editor.until(lambda: editor.look()["ghost"] == "one", "the other gives nothing")
    editor.press("Alt+]")
    editor.until(lambda: editor.look()["ghost"] == "two", "no next one")
    editor.menu("Turn Off Tabby")
    editor.until(lambda: "Extensions" in editor.look()["sidebar"], "its page is not shown")


def test_without_the_program(
    vscode: Start, daemon: Daemon, folder: Path, environment: dict[str, str]
) -> None:
    planted = folder / "bin"
    planted.mkdir()
    (planted / "copilotd").write_text(f"#!/bin/sh\ntouch {folder}/was-run\n")
    (planted / "copilotd").chmod(0o755)
    (folder / "a.py").touch()
    environment["PATH"] = f"{planted}:/usr/bin:/bin"
    editor = vscode()
    editor.open("a.py", ready=False)
    editor.status("copilotd: not running")
    notices = editor.until(lambda: editor.look()["notices"], "no offer")
    assert "pip install" in notices[0]
    assert "Install" in " ".join(editor.menu())
    assert not (folder / "was-run").exists()


def test_better_models_are_offered_once_and_fetched_on_demand(
    vscode: Start, daemon: Daemon, folder: Path, environment: dict[str, str]
) -> None:
    environment |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    environment.pop("PIP_FIND_LINKS", None)
    daemon(script=BODY, offered=["starter"])
    (folder / "a.py").touch()
    editor = vscode()
    editor.open("a.py")
    [offer] = editor.until(lambda: editor.look()["notices"], "no offer")
    assert "starter: 93 MB from nowhere, free" in offer
    button = ".notification-toast .monaco-button:has-text('%s')"
    editor.ask("click", selector=button % "Keep the Embedded Pair")
    editor.until(lambda: not editor.look()["notices"], "the offer stays")
    editor.type("def add")
    assert editor.ghost(BODY)
    editor.menu("Fetch a Model")
    editor.until(lambda: editor.look()["notices"], "no offer on demand")
    editor.ask("click", selector=button % "Fetch starter (93 MB)")
    editor.until(
        lambda: "pip could not fetch" in "".join(editor.look()["notices"]), "the outcome is not said"
    )


def test_with_the_embedded_pair(
    vscode_home: Path, vsix: Path, environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    """As a new user has it; and the README's picture."""
    env = environment | {"COPILOTD_MODEL": "embedded"}
    (folder / "shapes.py").write_text(SHAPES)
    try:
        with VSCode(vscode_home, vsix, env, folder, size=(1000, 520)) as editor:
            editor.open("shapes.py")
            editor.type("        return self.width * ")
            editor.until(lambda: editor.look()["ghost"].strip(), "no ghost text")
            picture = tmp_path / "vscode.png"
            editor.shot(picture)
            if not PICTURE.exists() or ENVIRONMENT.get("COPILOTD_PICTURES") == "1":
                PICTURE.write_bytes(picture.read_bytes())
            before = (folder / "shapes.py").read_bytes()
            editor.press("Tab")
            editor.until(lambda: len(editor.saved("shapes.py")) > len(before) + 30, "not taken")
    finally:
        stop(env)


def test_a_folder_is_read_only_once_it_is_trusted(
    vscode_home: Path, vsix: Path, environment: dict[str, str], folder: Path
) -> None:
    """With the embedded pair: only a daemon that has a tokenizer reads folders."""
    env = environment | {"COPILOTD_MODEL": "embedded"}
    (folder / "a.py").write_text(SHAPES)
    trust = {"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
    try:
        with VSCode(vscode_home, vsix, env, folder, settings=trust) as editor:
            editor.open("a.py")
            editor.type("        return self.width * ")
            editor.until(lambda: editor.look()["ghost"].strip(), "no ghost text without trust")
            assert status(env)["index"]["folders"] == 0
            editor.command("Workspaces: Manage Workspace Trust")
            editor.ask("click", selector=".workspace-trust-editor .monaco-button:text-is('Trust')")
            editor.until(lambda: status(env)["index"]["folders"] == 1, "not read after it is trusted")
    finally:
        stop(env)
