"""copilotd explain on a real daemon with a scripted model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from copilotd import wire
from copilotd.cli.explain import _place, _show
from copilotd.completion.explanation import Explanation, Part
from copilotd.engine.generation import Counters
from copilotd.replay.languages import language_id
from tests.support.scripted import ScriptedDaemon


def explain(env: dict[str, str], place: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "copilotd", "explain", place]
    return subprocess.run(line, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_prompt_reasons_and_suggestion_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def total(xs):\n    return \n")
    with ScriptedDaemon(tmp_path / "home", script="sum(xs)") as daemon:
        shown = explain(daemon.env, "a.py:2:12", tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "def total(xs):" in shown.stdout
    assert "sum(xs)" in shown.stdout
    assert "generate:" in shown.stdout


def test_one_token_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    counters = Counters(prefill_tokens=1, target_steps=1, generated_tokens=1, drafted={"echo": 1})
    told = Explanation(parts=[Part("prefix", 1, "x")], counters=counters)
    _show(wire.Answer(1, (), outcome="empty", explanation=msgspec.msgpack.encode(told)))
    said = capsys.readouterr().out
    assert "prefix: 1 token " in said
    assert "1 token prefilled, 0 reused, 1 step of the target, 1 token written" in said
    assert "echo: 0 of 1 drafted token accepted" in said


def test_without_a_model_it_says_where_to_look(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path / "home", loads=["error:broken"]) as daemon:
        (tmp_path / "a.py").write_text("x = 1\n")
        shown = explain(daemon.env, "a.py:1:2", tmp_path)
    assert shown.returncode == 1
    assert "no suggestion: failed (" in shown.stdout
    assert "copilotd status" in shown.stdout


def test_a_secret_file_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=canary\n")
    with ScriptedDaemon(tmp_path / "home", script="x") as daemon:
        shown = explain(daemon.env, ".env:1:5", tmp_path)
    assert "no suggestion: secret" in shown.stdout
    assert "secrets_allowed" in shown.stdout
    assert "canary" not in shown.stdout


@pytest.mark.parametrize("place", ["a.py", "a.py:x:1", "a.py:0:1", "missing.py:1:1"])
def test_what_is_wrong_is_said(tmp_path: Path, place: str) -> None:
    shown = explain({}, place, tmp_path)
    assert shown.returncode == 2
    assert shown.stderr.startswith("copilotd explain: ")
    assert "Errno" not in shown.stderr


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe")
    shown = explain({}, "a.py:1:1", tmp_path)
    assert (shown.returncode, "not UTF-8" in shown.stderr) == (2, True)


def test_places() -> None:
    assert _place("/w/a:b.py:3:4") == (Path("/w/a:b.py"), 3, 4)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.py", "python"),
        ("a.TSX", "typescriptreact"),
        ("a.rs", "rust"),
        ("README.md", "markdown"),
        ("LICENSE", "plaintext"),
    ],
)
def test_languages_go_by_the_names_that_editors_use(name: str, language: str) -> None:
    assert language_id(Path("/w") / name) == language
