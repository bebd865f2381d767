"""Newest request of each client, clients in turn, storms settled."""

from __future__ import annotations

import threading
import time

import pytest

from copilotd.completion.ask import Ask
from copilotd.daemon import scheduler as module
from copilotd.daemon.scheduler import Job, Scheduler


def job(client: str, number: int, age: float = 0.0) -> Job:
    ask = Ask(client=client, uri="file:///a", language="python", path="a", text="", offset=0)
    return Job(client, number, ask, arrived=time.monotonic() - age)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def test_a_newer_request_supersedes_the_waiting_and_the_running_one(scheduler: Scheduler) -> None:
    running, waiting, newest = (job("a", n, age=1.0) for n in (1, 2, 3))
    assert scheduler.submit(running) == []
    assert scheduler.take() is running
    assert scheduler.submit(waiting) == [running]
    assert running.cancelled
    assert scheduler.submit(newest) == [waiting]
    assert scheduler.take() is newest
    assert scheduler.take(wait=False) is None


def test_what_is_worked_off_is_no_longer_superseded(scheduler: Scheduler) -> None:
    """And an answer that came fast is no storm."""
    first, second = job("a", 1), job("a", 2)
    scheduler.submit(first)
    scheduler.take()
    scheduler.done()
    assert scheduler.submit(second) == []
    assert scheduler.take(wait=False) is second


def test_other_clients_are_left_alone(scheduler: Scheduler) -> None:
    one, other = job("a", 1), job("b", 1)
    scheduler.submit(one)
    assert scheduler.submit(other) == []
    assert scheduler.cancel("b", 1) is other
    assert not one.cancelled
    assert scheduler.take() is one


def test_cancelled_requests_are_never_taken(scheduler: Scheduler) -> None:
    first = job("a", 1)
    scheduler.submit(first)
    assert scheduler.cancel("a", 1) is first
    assert scheduler.cancel("a", 1) is None
    assert scheduler.cancel("a", 12345) is None
    assert scheduler.take(wait=False) is None


def test_clients_take_turns_however_often_they_ask(scheduler: Scheduler) -> None:
    for client in "abc":
        scheduler.submit(job(client, 1, age=1.0))
    served = []
    for number in range(2, 8):
        taken = scheduler.take()
        assert isinstance(taken, Job)
        served.append(taken.client)
        scheduler.done()
        scheduler.submit(job("a", number, age=1.0))  # a types all the time
        if taken.client != "a":
            scheduler.submit(job(taken.client, number, age=1.0))
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_a_client_whose_request_was_superseded_while_it_ran_goes_on(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the end of the line, where its next one would be superseded too; but not for ever either."""
    scheduler.submit(job("a", 1, age=1.0))
    scheduler.take()
    scheduler.submit(job("b", 1, age=1.0))
    second = job("a", 2, age=1.0)
    scheduler.submit(second)
    scheduler.done()
    assert scheduler.take() is second
    scheduler.submit(job("a", 3, age=1.0))
    monkeypatch.setattr(module, "TURN_S", 0.0)
    scheduler._turn_ends = 0.0  # the turn is over
    scheduler.done()
    taken = scheduler.take()
    assert isinstance(taken, Job)
    assert taken.client == "b"


def test_an_answer_ends_the_turn(scheduler: Scheduler) -> None:
    scheduler.submit(job("a", 1))
    scheduler.take()
    scheduler.submit(job("b", 1))
    scheduler.done()
    scheduler.submit(job("a", 2))
    taken = scheduler.take()
    assert isinstance(taken, Job)
    assert taken.client == "b"


def test_a_storm_starts_its_first_and_its_last(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 1.0)  # a busy machine may stop this loop for a while
    monkeypatch.setattr(module, "SETTLE_MOST_S", 1.0)
    starts = []
    for number in range(300):
        scheduler.submit(job("a", number))
        if taken := scheduler.take(wait=False):
            starts.append(taken)
        if number < 299:
            scheduler.cancel("a", number)
    last = scheduler.take()
    assert isinstance(last, Job)
    assert [taken.id for taken in starts] == [0]
    assert last.id == 299


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def waits(scheduler: Scheduler, clock: Clock, gaps: list[float]) -> list[float]:
    """Seconds each of a client's requests has to wait, the gaps to their successors given."""
    found = []
    for number, gap in enumerate(gaps):
        asked = job("a", number)
        scheduler.submit(asked)
        found.append(max(0.0, asked.not_before - asked.arrived))
        if gap > found[-1]:
            clock.now = max(clock.now, asked.not_before)
            assert scheduler.take(wait=False) is asked
        clock.now = asked.arrived + gap
    return found


def test_a_torn_storm_waits_longer_each_time(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that had to wait, was started and ended at once belongs to the storm still."""
    gaps = [0.001, 0.001, 0.022, 0.001, 0.042, 0.001, 0.001]
    assert waits(scheduler, Clock(monkeypatch), gaps) == pytest.approx(
        [0, 0.02, 0.02, 0.04, 0.04, 0.08, 0.08]
    )


@pytest.mark.parametrize("pace", [0.03, 0.05, 0.07, 0.09, 0.1, 0.15, 0.2])
def test_a_hand_is_out_of_a_storm_soon(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, pace: float
) -> None:
    """Whatever its pace, also if that is just beyond what a storm's requests have to wait."""
    clock = Clock(monkeypatch)
    torn = [0.001, 0.022, 0.042]
    assert waits(scheduler, clock, torn)[-1] == pytest.approx(0.04)
    typed = waits(scheduler, clock, [pace] * 8)
    assert typed[0] == pytest.approx(0.08)
    assert typed[1:] == [0] * 7


def test_typing_at_a_human_pace_is_not_taken_for_a_storm(scheduler: Scheduler) -> None:
    scheduler.submit(job("a", 1, age=0.1))
    scheduler.take()
    following = job("a", 2)
    scheduler.submit(following)
    assert scheduler.take(wait=False) is following


def test_a_storm_of_one_client_delays_no_other(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 60.0)
    monkeypatch.setattr(module, "SETTLE_MOST_S", 60.0)
    scheduler.submit(job("a", 1))
    scheduler.cancel("a", 1)
    scheduler.submit(job("a", 2))
    calm = job("b", 1)
    scheduler.submit(calm)
    assert scheduler.take(wait=False) is calm
    assert scheduler.take(wait=False) is None


def test_chores_come_first_and_end_idle_work(scheduler: Scheduler) -> None:
    done: list[str] = []
    assert not scheduler.busy()
    scheduler.submit(job("a", 1))
    scheduler.call(lambda: done.append("chore"))
    assert scheduler.busy()
    chore = scheduler.take()
    assert callable(chore)
    chore()
    assert done == ["chore"]
    assert isinstance(scheduler.take(), Job)


def test_a_client_that_leaves_takes_its_requests_along(scheduler: Scheduler) -> None:
    running, waiting = job("a", 1), job("b", 1)
    scheduler.submit(running)
    scheduler.take()
    scheduler.submit(waiting)
    assert scheduler.leave("a") == [running]
    assert running.cancelled
    assert scheduler.cancel_all() == [waiting]


def test_taking_wakes_for_work_and_at_the_end(scheduler: Scheduler) -> None:
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.extend([scheduler.take(), scheduler.take()]))
    thread.start()
    only = job("a", 1)
    scheduler.submit(only)
    while not taken and scheduler.busy():
        time.sleep(0.001)
    scheduler.close()
    thread.join(10)
    assert taken == [only, None]
