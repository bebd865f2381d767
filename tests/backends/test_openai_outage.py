"""When a server that failed is asked again, and what is said of it."""

from __future__ import annotations

import pytest

from copilotd.backends.base import BackendError, Unavailable
from copilotd.backends.openai.failure import Failure, of_status, retry_after
from copilotd.backends.openai.outage import LONGEST_WAIT_S, Outage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def outage(clock: Clock) -> Outage:
    return Outage("host:1", clock, lambda low, high: low)


def left_alone(outage: Outage) -> bool:
    try:
        outage.check()
    except BackendError:
        return True
    return False


def test_waits_double_up_to_a_limit_and_end_with_success() -> None:
    clock = Clock()
    broken = outage(clock)
    waits = []
    for _ in range(10):
        broken.failed(Failure("fails"))
        began = clock.now
        while left_alone(broken):
            clock.now += 0.05
        waits.append(clock.now - began)
    assert waits[:4] == pytest.approx([0.25, 0.5, 1.0, 2.0], abs=0.06)
    assert waits[-1] == pytest.approx(LONGEST_WAIT_S, abs=0.06)
    broken.over()
    broken.failed(Failure("fails"))
    clock.now += 0.3
    assert not left_alone(broken)


def test_a_server_that_asks_for_time_gets_it() -> None:
    clock = Clock()
    broken = outage(clock)
    broken.failed(Failure("has too much to do (429)", wait_s=7.0))
    clock.now += 6.99
    assert left_alone(broken)
    clock.now += 0.02
    assert not left_alone(broken)


def test_what_is_over_soon_is_nobodys_concern() -> None:
    clock = Clock()
    broken = outage(clock)
    assert isinstance(broken.failed(Failure("fails")), Unavailable)
    clock.now += 1.0
    assert isinstance(broken.failed(Failure("fails")), Unavailable)
    broken.over()
    clock.now += 60.0
    assert isinstance(broken.failed(Failure("fails")), Unavailable)


def test_one_outage_has_one_message_whatever_else_goes_wrong() -> None:
    clock = Clock()
    broken = outage(clock)
    said = set()
    for words in (
        "fails (status 500)",
        "broke off the connection",
        "fails (status 502)",
        "does not answer",
    ) * 3:
        error = broken.failed(Failure(words))
        said |= set() if isinstance(error, Unavailable) else {str(error)}
        clock.now += 2.0
    assert len(said) == 1
    assert "host:1" in said.pop()


def test_what_will_not_go_away_is_said_at_once() -> None:
    broken = outage(Clock())
    error = broken.failed(of_status(401, {}))
    assert not isinstance(error, Unavailable)
    assert "COPILOTD_API_KEY" in str(error)


def test_a_long_wait_that_is_asked_for_is_said_at_once() -> None:
    """Else nobody would hear of it for minutes, and no fallback would write."""
    assert isinstance(outage(Clock()).failed(of_status(429, {"retry-after": "20"})), Unavailable)
    assert not isinstance(outage(Clock()).failed(of_status(429, {"retry-after": "300"})), Unavailable)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("nan", 0.0),
        ("inf", 600.0),
        ("1e9", 600.0),
        ("soon", 0.0),
        ("", 0.0),
    ],
)
def test_retry_after(value: str, seconds: float) -> None:
    assert retry_after(value, now=1795953600.0) == seconds  # 2026-11-29 12:00 UTC


@pytest.mark.parametrize(
    ("status", "lasting", "named"),
    [
        (301, True, "endpoint"),
        (400, True, "context_tokens"),
        (401, True, "key"),
        (403, True, "key"),
        (404, True, "endpoint_model"),
        (418, False, "418"),
        (429, False, "429"),
        (500, False, "500"),
        (503, False, "503"),
    ],
)
def test_statuses(status: int, lasting: bool, named: str) -> None:
    failure = of_status(status, {"retry-after": "3"})
    assert failure.lasting is lasting
    assert named in str(failure)
    assert (failure.wait_s == 3.0) is (status >= 418)
