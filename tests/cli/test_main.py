"""The command line as a person meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from copilotd import __version__, cli
from copilotd.cli import config, replay
from copilotd.config import load as load_settings
from copilotd.replay.trace import load


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "copilotd", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"copilotd {__version__}\n")


def test_help_names_every_command_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in cli.commands():
        assert f"    {name} " in text
        assert cli.load(name).HELP.split()[0] in text
    assert "copilotd --stdio" in text


def test_no_word_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 0
    assert "commands:" in capsys.readouterr().out


def test_an_unknown_command_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["complete-me"])
    assert ended.value.code == 2
    assert "stdio" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_has_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: copilotd {name}" in capsys.readouterr().out


def test_the_example_of_a_trace_can_be_played(tmp_path: Path) -> None:
    lines = [line.strip() for line in replay.MORE.splitlines() if line.strip().startswith("{")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert [event.t for event in load(tmp_path / "a.jsonl").events] == [0, 100, 105, 900]


def test_the_example_of_settings_can_be_used(tmp_path: Path) -> None:
    lines = [line for line in config.MORE.splitlines() if line.startswith("    ")]
    (tmp_path / "a.toml").write_text("\n".join(lines))
    assert load_settings(tmp_path / "none", tmp_path / "a.toml", {}).settings.daemon.model.startswith(
        "/models"
    )


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert cli.main(["status"]) == 130
    assert capsys.readouterr() == ("", "")


def test_arguments_that_editors_add_are_taken() -> None:
    command = [sys.executable, "-P", "-m", "copilotd", "--stdio", "--clientProcessId=1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_looking_for_commands_loads_no_model_library() -> None:
    probe = "import sys; from copilotd import cli; [cli.load(c) for c in cli.commands()]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", probe], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers"} & set(done.stdout.split())
