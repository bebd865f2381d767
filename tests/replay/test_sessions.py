"""Recorded typing through the real program and the embedded pair: what is counted, never how long it took.

At `--speed max` each event waits for the answer before it, so what the daemon counted belongs to one request.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from copilotd.cli.replay import counting
from copilotd.config import SessionSettings
from copilotd.replay.counts import Counts
from copilotd.replay.player import Observations, Player, Request
from copilotd.replay.report import report
from copilotd.replay.trace import Trace, load

TRACES = sorted(Path(__file__).with_name("traces").glob("*.jsonl"))
FEW = ("networkx-test-tree", "rxjs-subscriber", "httpclient-test-cookie-origin", "dbt-redshift-by-relation")
"""one of each language"""
REQUESTS = 60
"""of each of those"""

ENVIRONMENT = {
    "COPILOTD_MODEL": "embedded",
    "COPILOTD_DRAFT": "embedded-draft",
    "COPILOTD_SPECULATION": "on",
    "COPILOTD_COLD_TOKENS": "4096",
    "COPILOTD_THREADS": "1",
}
"""Nothing here is decided by how fast this machine is."""


def beginning(trace: Trace, requests: int) -> Trace:
    """The trace up to so many requests."""
    asked = [index for index, event in enumerate(trace.events) if event.complete]
    return replace(trace, events=trace.events[: asked[requests - 1] + 1]) if len(asked) > requests else trace


def play(home: Path, traces: Sequence[Trace]) -> list[Observations]:
    """One after the other against one daemon, without a deadline."""

    async def one(trace: Trace, number: int) -> Observations:
        patient = replace(trace, settings=SessionSettings(max_latency_ms=0))
        async with counting() as read:
            return await Player(patient, home / f"w{number}", "max", read).play()

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("COPILOTD_")]:
            patch.delenv(name)
        for name, value in {**ENVIRONMENT, "COPILOTD_HOME": str(home), "HOME": str(home)}.items():
            patch.setenv(name, value)
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        try:
            return [asyncio.run(one(trace, number)) for number, trace in enumerate(traces)]
        finally:
            subprocess.run(
                [sys.executable, "-P", "-m", "copilotd", "stop"], stdout=subprocess.DEVNULL, check=True
            )


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[Observations]:
    traces = [beginning(load(file), REQUESTS) for file in TRACES if file.stem in FEW]
    return play(tmp_path_factory.mktemp("replay"), traces)


def requests(observed: Sequence[Observations]) -> Iterator[tuple[Request, Counts]]:
    for one in observed:
        for request in one.requests:
            assert request.counted is not None
            yield request, request.counted


def check(observed: Sequence[Observations]) -> None:
    """What holds for every session."""
    overall = report("all", observed)
    assert (overall.stale, overall.errors, overall.cancelled) == (0, 0, 0)
    assert overall.answered > 0.8 * overall.requests
    for _, counted in requests(observed):
        if counted.typed_through:  # without the model
            assert (counted.target_steps, counted.prefill_tokens, counted.drafted) == (0, 0, {})
        else:  # every step writes a token at least; the last may find a stop
            assert counted.target_steps <= counted.generated_tokens + 1
    assert overall.typed_through.count > 0.2 * overall.requests
    along = [counted for request, counted in requests(observed) if request.along]
    assert sum(counted.target_steps > 0 for counted in along) <= 0.05 * len(along)


def test_every_answer_is_right_for_its_text_and_nothing_goes_wrong(few: list[Observations]) -> None:
    check(few)


def test_a_keystroke_costs_a_few_tokens_of_prefill(few: list[Observations]) -> None:
    for one in few:
        counts = [counted.prefill_tokens for _, counted in requests([one]) if counted.target_steps]
        cold, *typing = counts
        assert cold > 100  # the whole prompt, once
        assert statistics.median(typing) <= 2
        assert sum(tokens > 64 for tokens in typing) <= 0.3 * len(typing)  # a new place, a new line's anchor


def test_speculation_saves_steps(few: list[Observations]) -> None:
    overall = report("all", few)
    assert overall.tokens_per_step is not None
    assert overall.tokens_per_step > 1.3
    assert overall.drafted["lookup"] > 0
    assert overall.drafted["draft"] > 0
    assert 0 < overall.acceptance["lookup"] <= 1
    written = sum(
        len(request.text) for request, counted in requests(few) if request.text and counted.target_steps
    )
    assert overall.target_steps < 0.5 * written  # steps for a character


def test_every_figure_of_the_report_is_there(few: list[Observations]) -> None:
    overall = report("all", few)
    assert overall.model.startswith("embedded, draft embedded-draft")
    assert overall.exact_chars_share
    assert overall.exact_line_share
    assert overall.typed_through.answer_ms.p50
    assert {"waiting", "prompt", "prefill", "decode", "text", "memory", "way"} == set(overall.stage_ms)
    assert overall.daemon_rss_mb > 100
    assert 10 < overall.front_pss_mb < 200
    assert overall.cold_ms.max


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_trace_of_the_repository(tmp_path: Path) -> None:
    check(play(tmp_path, [beginning(load(file), 80) for file in TRACES if file.stem not in FEW]))
