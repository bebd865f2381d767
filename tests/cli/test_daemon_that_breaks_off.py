"""A daemon that dies while a command talks to it is a sentence, never a traceback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilotd import cli


@pytest.fixture
def resetting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A socket that closes with what it was sent unread, which the other end hears as a reset."""
    path = tmp_path / "s"
    monkeypatch.setenv("COPILOTD_SOCKET", str(path))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def once() -> None:
            connection, _ = server.accept()
            connection.recv(1, socket.MSG_PEEK)
            connection.close()

        thread = threading.Thread(target=once, daemon=True)
        thread.start()
        yield
        thread.join(10)


@pytest.mark.usefixtures("resetting")
@pytest.mark.parametrize("words", [["reload"], ["status"], ["explain"]])
def test_it_is_said(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    cli.main([*words, f"{file}:1:1"] if words == ["explain"] else words)
    said = capsys.readouterr()
    assert "ended" in said.out + said.err
