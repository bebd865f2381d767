"""The report's arithmetic on observations written by hand."""

from __future__ import annotations

import pytest

from copilotd.replay.player import Keystroke, Observations, Request
from copilotd.replay.report import Quantiles, quantiles, report


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantiles([5.0, 1.0, 3.0]) == Quantiles(3.0, 5.0, 5.0, 5.0)
    assert quantiles([]) == Quantiles()


def observed() -> Observations:
    return Observations(
        "one",
        keystrokes=[
            Keystroke(0.0, "total\n", cold=True, ghost_ms=50.0, right=True, next_ms=100.0),
            Keystroke(100.0, "otal\n", ghost_ms=250.0, right=True, next_ms=200.0),
            Keystroke(200.0, "tal\n", ghost_ms=None),
        ],
        requests=[
            Request("total\n", "answered", 45.0, False, "total\n    more"),
            Request("otal\n", "answered", 20.0, True, "other"),
            Request("tal\n", "cancelled", 1.0, False, None),
        ],
        status_before={"target_steps": 10, "generated_tokens": 10, "drafted": {"lookup": 4}},
        status_after={
            "target_steps": 14,
            "generated_tokens": 20,
            "drafted": {"lookup": 12, "draft": 2},
            "accepted": {"lookup": 6},
            "requests": {"typed_through": 3, "joined": 1},
            "prefill": {"1": 19, "40": 1},
        },
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
    assert one.prefill_tokens.p50 == 1
    assert one.prefill_tokens.max == 40


def test_two_traces_add_up() -> None:
    both = report("all", [observed(), observed()])
    assert both.requests == 6
    assert both.target_steps == 8
    assert both.acceptance["lookup"] == 0.75
