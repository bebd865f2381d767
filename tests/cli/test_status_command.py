"""What `copilotd status` says when there is no daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd import cli


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
