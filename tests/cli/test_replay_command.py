"""copilotd replay on the real front and a real daemon whose model is a script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from copilotd import wire
from copilotd.config import SessionSettings
from tests.support.lsp_driver import LspProcess
from tests.support.scripted import ScriptedDaemon

TEXT = "def total(a, b):\n    \n"
TYPED = "return a + b"
PATIENT = {"max_latency_ms": 0}
"""on a busy machine too, a request gets its answer"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    with ScriptedDaemon(tmp_path / "home", script=TYPED) as daemon:
        with daemon.client() as client:  # the first completion of a process takes seconds on a busy machine
            client.hello()
            client.ready()
            client.send(
                wire.Configure(SessionSettings(max_latency_ms=0)),
                wire.Open("file:///a.py", "python", 1, TEXT),
            )
            client.complete("file:///a.py", 1, 21)
        yield daemon


def trace(file: Path, gap_ms: int = 30, pasted: str = "") -> Path:
    lines: list[dict[str, object]] = [
        {"format": "copilotd-trace/1", "name": file.stem, "files": {"a.py": TEXT}, "settings": PATIENT},
        {"t": 0, "open": "a.py"},
        {"t": 5, "complete": "a.py", "at": [1, 4], "truth": TYPED},
    ]
    t = 600
    for column, character in enumerate(TYPED, 4):
        place = [[1, column], [1, column]]
        lines += [
            {"t": t, "change": "a.py", "edits": [{"range": place, "text": character}]},
            {"t": t + 5, "complete": "a.py", "at": [1, column + 1], "truth": TYPED[column - 3 :]},
        ]
        t += gap_ms
    if pasted:
        lines.append({"t": t, "change": "a.py", "edits": [{"range": [[0, 0], [0, 0]], "text": pasted}]})
    lines.append({"t": t + 400, "close": "a.py"})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def replay(daemon: ScriptedDaemon, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "copilotd", "replay", *map(str, words)]
    return subprocess.run(command, env=daemon.env, capture_output=True, text=True, timeout=120, check=False)


def reported(daemon: ScriptedDaemon, folder: Path, *words: object) -> dict[str, Any]:
    done = replay(daemon, *words, "--json", folder / "report.json")
    assert done.returncode == 0, done.stderr
    whole: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return whole


def test_every_field_of_the_report_says_what_happened(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    found = reported(
        daemon, tmp_path, trace(tmp_path / "a.jsonl"), "--speed", "max", "--html", tmp_path / "r.html"
    )
    assert (found["speed"], found["editor"], len(found["traces"])) == ("max", None, 1)
    one = found["all"]
    assert one["requests"] == 1 + len(TYPED)
    assert (one["stale"], one["errors"], one["cancelled"]) == (0, 0, 0)
    assert one["answered"] == one["requests"]
    assert one["typed_through"]["count"] >= len(TYPED) - 1  # all but the first
    assert one["typed_through"]["answer_ms"]["max"] > 0
    assert one["exact_chars_share"] == 1.0
    assert one["cold_ms"]["max"] > 0
    assert one["ghost_ms"]["p50"] <= one["ghost_ms"]["max"]
    assert one["target_steps"] > 0
    assert one["tokens_per_step"] > 0
    assert one["daemon_rss_mb"] > 10
    assert 10 < one["front_pss_mb"] < 200
    assert {"memory", "way", "decode", "prompt", "waiting"} <= set(one["stage_ms"])
    page = (tmp_path / "r.html").read_text()
    assert "Where the milliseconds go" in page
    assert "return a" not in page  # numbers only


def test_vscode_asks_after_the_last_key_and_not_after_a_paste(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    quick = trace(tmp_path / "quick.jsonl", gap_ms=10, pasted="import os\nimport sys\n")
    found = reported(daemon, tmp_path, quick, "--editor", "vscode")["all"]
    assert found["requests"] < len(TYPED)  # one for each pause, and there may be some on a busy machine
    slow = trace(tmp_path / "slow.jsonl", gap_ms=300, pasted="import os\nimport sys\n")
    found = reported(daemon, tmp_path, slow, "--editor", "vscode")["all"]
    assert len(TYPED) // 2 < found["requests"] <= len(TYPED)
    assert (found["stale"], found["errors"]) == (0, 0)
    assert found["ghost_ms"]["p50"] >= 50  # the debounce is part of the wait


def test_neovim_waits_longer_and_asks_where_the_cursor_goes(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    slow = trace(tmp_path / "slow.jsonl", gap_ms=150)
    found = reported(daemon, tmp_path, slow, "--editor", "neovim")["all"]
    assert found["requests"] < len(TYPED)  # keys 150 ms apart come within its 200 ms
    assert found["errors"] == 0


def test_what_cannot_be_done_is_said_before_anything_is_played(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    file = trace(tmp_path / "a.jsonl")
    for words, says in (
        ([tmp_path / "none.jsonl"], "none.jsonl"),
        ([file, "--json", tmp_path / "no" / "r.json"], "no such folder"),
        ([file, "--editor", "vscode", "--speed", "max"], "not allowed with"),
        ([file, "--editor", "emacs"], "invalid choice"),
    ):
        done = replay(daemon, *words)
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stdout == ""


def test_a_report_with_plots_needs_matplotlib_and_says_so_first(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from copilotd.cli import main\n"
        f"sys.exit(main(['replay', {str(trace(tmp_path / 'a.jsonl'))!r}, '--html', {str(tmp_path / 'r.html')!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=daemon.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install matplotlib" in done.stderr
    assert done.stdout == ""


def test_a_recorded_session_can_be_played(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    file, folder = tmp_path / "session.jsonl", tmp_path / "w"
    folder.mkdir()
    command: Sequence[str] = (sys.executable, "-P", "-m", "copilotd", "record", str(file))
    uri = (folder / "a.py").as_uri()
    with LspProcess(daemon.env, command) as editor:
        editor.initialize(rootUri=folder.as_uri(), initializationOptions={"copilotd": PATIENT})
        editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "ready")
        editor.open(uri, TEXT)
        editor.complete(uri, (1, 4))
        for column, character in enumerate(TYPED, 4):
            editor.change(uri, column, ((1, column), (1, column), character))
            editor.complete(uri, (1, column + 1))
        editor.shutdown()
        assert editor.exit_code() == 0
    found = reported(daemon, tmp_path, file, "--speed", "max")["all"]
    assert found["requests"] == 1 + len(TYPED)
    assert found["exact_chars_share"] == 1.0  # what was typed next was found afterwards
    assert (found["stale"], found["errors"]) == (0, 0)


def test_files_that_cannot_be_written_are_named(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    header = {"format": "copilotd-trace/1", "name": "one", "files": {"a.py": TEXT}, "settings": PATIENT}
    one.write_text(json.dumps(header) + '\n{"t": 0, "disk": "a.py/b", "text": ""}\n')
    impossible = replay(daemon, one)
    unwritable = replay(daemon, trace(tmp_path / "two.jsonl", gap_ms=1), "--json", tmp_path)
    for done, name in ((impossible, "a.py"), (unwritable, str(tmp_path))):
        assert done.returncode == 1
        assert name in done.stderr.replace("\n", "")
        assert "Traceback" not in done.stderr


# ---- whose daemon it is ------------------------------------------------------------------------------------


def test_a_daemon_that_runs_is_used_as_it_is_and_that_is_said(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    daemon.env["COPILOTD_MODEL"] = "embedded"
    done = replay(daemon, trace(tmp_path / "a.jsonl"), "--speed", "max")
    assert done.returncode == 0
    said = done.stderr.replace("\n", " ")
    assert "a daemon runs already" in said
    assert "COPILOTD_MODEL counts for one that starts" in said
    assert "draft none" in said  # the model that was measured
    assert len(daemon.living()) == 1


def test_a_daemon_started_with_this_terminals_settings_does_not_stay(tmp_path: Path) -> None:
    """An editor would meet it and write with a model that nobody set."""
    home = ScriptedDaemon(tmp_path / "home", start=False)
    home.env["COPILOTD_MODEL"] = "embedded"
    with home.ended_at_last():
        done = replay(home, trace(tmp_path / "a.jsonl", gap_ms=5), "--speed", "max")
        assert done.returncode == 0, done.stderr
        assert "embedded, draft embedded-draft" in done.stderr.replace("\n", " ")
        assert home.living() == []


def test_a_model_that_is_not_there_is_no_result(tmp_path: Path) -> None:
    home = ScriptedDaemon(tmp_path / "home", start=False)
    home.env["COPILOTD_MODEL"] = "nope"
    with home.ended_at_last():
        done = replay(home, trace(tmp_path / "a.jsonl"), "--speed", "max")
        assert done.returncode == 1
        assert "nope" in done.stderr
        assert done.stdout == ""
        assert home.living() == []
