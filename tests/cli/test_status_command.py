"""What `copilotd status` says, with a daemon and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd import cli
from copilotd.backends.base import Identity
from copilotd.cli.status import _lines
from copilotd.daemon.status import Index, Status


def test_without_a_daemon_it_says_who_starts_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status"]) == 0
    said = capsys.readouterr().out
    assert "not running" in said
    assert "an editor starts it" in said
    assert ".log" in said


def test_a_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "a-file"
    taken.touch()
    monkeypatch.setenv("COPILOTD_HOME", str(taken))
    assert cli.main(["status"]) == 0
    assert str(taken / "run") in capsys.readouterr().out


def test_the_kernels_are_named_and_why_they_are_torchs() -> None:
    status = Status(pid=1, version="1", uptime_s=1.0, state="ready")
    assert "kernels" not in "".join(_lines(status))  # a GPU, a team's server
    status.kernels = "compiled"
    assert "kernels: compiled for this processor" in _lines(status)
    status.kernels, status.why_torch = "torch", "there is no C compiler: install gcc or clang"
    assert "kernels: torch (there is no C compiler: install gcc or clang)" in _lines(status)


def test_the_index_and_what_the_self_test_found_are_said() -> None:
    index = Index(folders=2, files=40, tokens=9000, skipped={"secret": 1, "ignored": 3})
    status = Status(
        pid=1, version="1", uptime_s=1.0, state="ready", index=index, identity=Identity(True, False)
    )
    said = _lines(status)
    assert "index: 2 folders, 40 files, 9000 tokens; left out: ignored 3, secret 1" in said
    assert "changes no token, by the self-test: speculation, not warm caches" in said
    status.index, status.clients, status.drafted = Index(1, 1, 1), 1, {"lookup": 1}
    text = "\n".join(_lines(status))
    assert "1 editor, 0 documents, " in text
    assert "index: 1 folder, 1 file, 1 token; " in text
    assert "lookup: 0 of 1 drafted token accepted" in text
    status.identity = Identity()
    assert "self-test" not in "".join(_lines(status))
