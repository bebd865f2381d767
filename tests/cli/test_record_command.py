"""copilotd record: a front like any other, whose trace can be played."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Trace, load
from tests.support.fake_daemon import insert
from tests.support.lsp_driver import LspProcess
from tests.support.window import Window


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with Window(tmp_path, insert("total")) as window:
        yield window


def recorded(window: Window, file: Path, encoding: str = "utf-16") -> LspProcess:
    command = (sys.executable, "-P", "-m", "copilotd", "record", str(file), "--stdio")
    folder = window.folder / "w"
    folder.mkdir(exist_ok=True)
    capabilities = {"general": {"positionEncodings": [encoding]}}
    options = {"rootUri": folder.as_uri(), "capabilities": capabilities}
    return window.editor(initialize=options, command=command)


def text_at_the_end(trace: Trace, path: str) -> str:
    buffer = Buffer("")
    for event in trace.events:
        if event.disk == path:
            buffer = Buffer(event.text or "")
        if event.change == path:
            buffer.apply(event.edits)
    return buffer.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_what_is_typed_is_written_and_answered_as_ever(window: Window, encoding: str) -> None:
    file = window.folder / "session.jsonl"
    editor = recorded(window, file, encoding)
    uri = (window.folder / "w" / "src" / "a.py").as_uri()
    editor.open(uri, "é🎉 = 1\n")
    wide = {"utf-16": 3, "utf-8": 6, "utf-32": 2}[encoding]
    editor.change(uri, 2, ((0, wide), (0, wide), "x"))
    [item] = editor.complete(uri, (0, wide + 1))
    assert item["insertText"] == "total"
    editor.change(uri, 3, "é🎉x = 1\ny\n")
    editor.open((window.folder / "w" / ".env").as_uri(), "TOKEN=1\n")
    editor.open("file:///elsewhere/b.py", "outside\n")
    editor.open("untitled:c", "nowhere\n")
    editor.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    editor.shutdown()
    assert editor.exit_code() == 0
    trace = load(file)
    assert {event.path for event in trace.events} == {"src/a.py"}
    assert [event.at for event in trace.events if event.complete] == [(0, 4)]
    assert text_at_the_end(trace, "src/a.py") == "é🎉x = 1\ny\n"
    assert any(event.save for event in trace.events)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_second_window_has_a_file_of_its_own(window: Window) -> None:
    file = window.folder / "session.jsonl"
    for name in ("session.jsonl", "session-2.jsonl"):
        editor = recorded(window, file)
        uri = (window.folder / "w" / "a.py").as_uri()
        editor.open(uri, "")
        editor.change(uri, 2, ((0, 0), (0, 0), "x"))
        assert editor.complete(uri, (0, 1))
        editor.shutdown()
        assert editor.exit_code() == 0
        assert load(window.folder / name).events


def test_settings_are_session_keys_alone(window: Window) -> None:
    file = window.folder / "session.jsonl"
    command = (sys.executable, "-P", "-m", "copilotd", "record", str(file))
    folder = window.folder / "w"
    folder.mkdir()
    settings = {"copilotd": {"multiline": "never", "model": "/evil"}}
    editor = window.editor(
        initialize={"rootUri": folder.as_uri(), "initializationOptions": settings}, command=command
    )
    uri = (folder / "a.py").as_uri()
    editor.open(uri, "")
    editor.change(uri, 2, ((0, 0), (0, 0), "x"))
    editor.complete(uri, (0, 1))
    editor.shutdown()
    assert editor.exit_code() == 0
    assert file.read_bytes().splitlines()[0].endswith(b'"settings":{"multiline":"never"}}')


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "copilotd", "record", str(tmp_path / "no" / "s.jsonl")]
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert str(tmp_path / "no" / "s.jsonl") in done.stderr


def test_it_is_as_light_as_any_front() -> None:
    code = (
        "import sys, copilotd.cli.record, copilotd.lsp.recording, copilotd.lsp.server, copilotd.replay.recorder\n"
        "print([name for name in ('torch', 'numpy', 'transformers', 'matplotlib', 'httpx') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_two_files_of_one_name_stay_two(window: Window) -> None:
    file = window.folder / "session.jsonl"
    command = (sys.executable, "-P", "-m", "copilotd", "record", str(file))
    editor = window.editor(command=command)  # without a folder
    for folder, text in (("x", "A\nB\n"), ("y", "C\n")):
        editor.open(f"file:///{folder}/a.py", text)
    editor.change("file:///x/a.py", 2, ((1, 0), (1, 1), "Z"))
    editor.complete("file:///x/a.py", (1, 1))
    editor.notify("textDocument/didClose", {"textDocument": {"uri": "file:///y/a.py"}})
    editor.open("file:///y/a.py", "D\n")
    editor.shutdown()
    assert editor.exit_code() == 0
    trace = load(file)
    assert text_at_the_end(trace, "a.py") == "A\nZ\n"
    assert text_at_the_end(trace, "2/a.py") == "D\n"


@pytest.mark.parametrize("name", ["/", "."])
def test_a_folder_is_no_file_to_record_into(tmp_path: Path, name: str) -> None:
    command = (sys.executable, "-P", "-m", "copilotd", "record", name)
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.returncode, b"folder" in done.stderr) == (2, True)
