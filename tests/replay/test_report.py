"""The report's arithmetic on observations written by hand, and the page of it."""

from __future__ import annotations

import re

import pytest

from copilotd.replay.counts import Counts, Stage
from copilotd.replay.picture import picture
from copilotd.replay.player import Keystroke, Observations, Request, Sample
from copilotd.replay.report import Quantiles, quantiles, report


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantiles([5.0, 1.0, 3.0]) == Quantiles(3.0, 5.0, 5.0, 5.0)
    assert quantiles([]) == Quantiles()


def observed() -> Observations:
    half = Counts(drafted={"lookup": 4}, accepted={"lookup": 4})
    whole = Counts(
        typed_through=3,
        joined=1,
        target_steps=4,
        generated_tokens=10,
        drafted={"lookup": 8, "draft": 2},
        accepted={"lookup": 6},
        prefill={1: 19, 40: 1},
        stages={
            "answer": Stage(1, 30.0),
            "memory": Stage(1, 2.0),
            "prefill": Stage(1, 10.0),
            "decode": Stage(1, 20.0),
        },
    )
    return Observations(
        "one",
        "toy",
        keystrokes=[
            Keystroke(0.0, "total\n", cold=True, ghost_ms=50.0, right=True, next_ms=100.0),
            Keystroke(100.0, "otal\n", ghost_ms=250.0, right=True, next_ms=200.0),
            Keystroke(200.0, "tal\n", ghost_ms=None),
        ],
        requests=[
            Request("total\n", "answered", 45.0, False, "total\n    more"),
            Request("otal\n", "answered", 20.0, True, "other", along=True),
            Request("tal\n", "cancelled", 1.0, False, None),
        ],
        samples=[Sample(1000.0, half), Sample(2000.0, whole)],
    )


def test_report_counts_and_shares() -> None:
    one = report("one", [observed()])
    assert (one.requests, one.answered, one.cancelled, one.stale, one.errors) == (3, 2, 1, 1, 0)
    assert one.visible_share == {"100": pytest.approx(1 / 3, abs=1e-4), "300": pytest.approx(2 / 3, abs=1e-4)}
    assert one.cold_ms.max == 50.0
    assert one.ghost_in_time_share == pytest.approx(1 / 3, abs=1e-4)
    # "total", "otal" and "tal" are to be written: 5 and 2 ("ot") of these 12 characters are right
    assert one.exact_chars_share == pytest.approx(7 / 12, abs=1e-4)
    assert one.exact_line_share == pytest.approx(1 / 3, abs=1e-4)
    assert one.tokens_per_step == 2.5
    assert one.drafted == {"draft": 2, "lookup": 8}
    assert one.acceptance == {"draft": 0.0, "lookup": 0.75}
    assert one.typed_through.count == 3
    assert one.typed_through.answer_ms == Quantiles(20.0, 20.0, 20.0, 20.0)
    assert one.prefill_tokens.p50 == 1
    assert one.prefill_tokens.max == 40


def test_milliseconds_by_stage_are_means_and_the_way_is_what_the_daemon_did_not_take() -> None:
    stages = report("one", [observed()]).stage_ms
    assert stages == {"prefill": 10.0, "decode": 20.0, "memory": 2.0, "way": 32.5 - 16.0}


def test_two_traces_add_up() -> None:
    both = report("all", [observed(), observed()])
    assert both.requests == 6
    assert both.target_steps == 8
    assert both.acceptance["lookup"] == 0.75
    assert both.prefill_tokens.max == 40


def test_differences_of_two_readings() -> None:
    half, whole = (sample.counts for sample in observed().samples)
    gained = whole.since(half)
    assert gained.drafted == {"lookup": 4, "draft": 2}
    assert gained.accepted == {"lookup": 2}
    assert gained.stages["answer"] == Stage(1, 30.0)
    assert half.plus(gained).drafted == whole.drafted


def test_the_page_shows_every_part() -> None:
    traces = [observed(), observed()]
    text = picture(traces, [*(report(o.name, [o]) for o in traces), report("all", traces)], "speed: max")
    for words in ("How soon", "Where the milliseconds go", "Acceptance over time", "Tokens by source", "toy"):
        assert words in text
    assert text.count("<svg") == 4
    assert len(re.findall(r">(lookup|draft)</text>", text)) >= 2


def test_a_page_of_nothing() -> None:
    nothing = [Observations("none")]
    text = picture(nothing, [report("none", nothing), report("all", nothing)], "x")
    assert "Nothing was drafted" in text
