"""copilotd bench decode: prompts from real files, a report with every figure, errors in one line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from copilotd.backends.local import LocalBackend
from copilotd.cli import bench
from copilotd.config import Settings
from tests.backends.test_local import pair
from tests.support.engine_checks import CHEAP_DRAFTS
from tests.support.scripted import ByteVocabulary

DESIGNED = {
    "device", "target", "draft", "quantisation", "plain_tokens_per_s", "speculative_tokens_per_s", "speedup",
    "acceptance", "tokens_per_step", "identical", "step_ms", "draft_step_ms", "bytes_per_token",
    "bandwidth_share",
}  # fmt: skip


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(["decode", *words])


def test_the_report_has_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(settings: Settings, progress: object) -> LocalBackend:
        return LocalBackend(pair(), settings.daemon, CHEAP_DRAFTS)

    monkeypatch.setattr(LocalBackend, "load", load)
    monkeypatch.setenv("COPILOTD_HOME", str(tmp_path))
    monkeypatch.setenv("COPILOTD_THREADS", "1")
    out = tmp_path / "report.json"
    assert bench.run(arguments("--prompts", "3", "--tokens", "12", "--json", str(out))) == 0
    report = json.loads(out.read_text())
    assert set(report) >= DESIGNED
    assert report["identical"] is True
    assert report["prompts"] == 3
    assert report["step_ms"]["1"] == 10.0
    assert "the same text both ways: yes" in capsys.readouterr().out


def test_an_unusable_model_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COPILOTD_HOME", str(tmp_path))
    monkeypatch.setenv("COPILOTD_MODEL", "no-such-model")
    assert bench.run(arguments()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("copilotd bench: ")
    assert said.err.count("\n") == 1


def test_prompts_are_the_same_every_time_and_fit() -> None:
    files = bench.standard_library()
    cut = [list(bench.cut_prompts(files, ByteVocabulary(), 5, 32, 500)) for _ in range(2)]
    assert [r.prompt for r in cut[0]] == [r.prompt for r in cut[1]]
    assert all(len(r.prompt) + 32 <= 500 for r in cut[0])
    fim = ByteVocabulary.fim
    assert fim is not None
    assert all(r.prompt[0] == fim.prefix and r.prompt[-1] == fim.middle for r in cut[0])


def test_files_too_short_to_cut_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="400 characters"):
        list(bench.cut_prompts([tmp_path / "a.py"], ByteVocabulary(), 5, 32, 500))


@pytest.mark.parametrize("words", [["--prompts", "0"], ["--tokens", "-1"], ["--tokens", "many"]])
def test_numbers_that_measure_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(*words)
    assert ended.value.code == 2


def test_a_report_that_cannot_be_written_is_refused_before_the_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run(arguments("--json", str(tmp_path / "missing" / "report.json"))) == 2
    assert "missing" in capsys.readouterr().err
