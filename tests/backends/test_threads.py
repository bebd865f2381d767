"""One thread while a neighbour is busy, all of them again when it has gone."""

from __future__ import annotations

import pytest

from copilotd.backends.threads import PROBE_S, Threads
from copilotd.engine.calibration import BUSY_MS

IDLE, WAITING = 0.05, 4 * BUSY_MS


class Machine:
    """A clock, and a neighbour that is busy or not."""

    def __init__(self, most: int) -> None:
        self.now = 100.0
        self.busy = False
        self.set: list[int] = []
        self.looked = 0
        self.threads = Threads(most, self.set.append, self.barrier, lambda: self.now)

    def barrier(self) -> float:
        self.looked += 1
        return WAITING if self.busy and self.set[-1] > 1 else IDLE

    def generation(self) -> int:
        """The threads one has. Its steps take 10 ms, or 50 while several threads wait."""
        self.threads.before()
        threads = self.set[-1]
        self.threads.after(50.0 if self.busy and threads > 1 else 10.0, expected_ms=10.0)
        return threads


def test_an_idle_machine_gives_all_and_nothing_is_measured() -> None:
    machine = Machine(2)
    assert [machine.generation() for _ in range(5)] == [2] * 5
    assert machine.looked == 0


def test_a_busy_neighbour_costs_one_generation_and_a_look_every_few_seconds() -> None:
    machine = Machine(2)
    machine.busy = True
    assert [machine.generation() for _ in range(4)] == [2, 1, 1, 1]
    assert machine.looked == 1
    machine.now += PROBE_S
    assert [machine.generation() for _ in range(3)] == [1, 1, 1]
    assert machine.looked == 2


def test_when_the_neighbour_has_gone_all_threads_come_back() -> None:
    machine = Machine(4)
    machine.busy = True
    machine.generation()
    machine.busy = False
    machine.now += PROBE_S / 2
    assert machine.generation() == 1
    machine.now += PROBE_S / 2
    assert [machine.generation() for _ in range(2)] == [4, 4]
    machine.busy = True
    assert [machine.generation() for _ in range(2)] == [4, 1]


def test_slow_work_is_no_proof_but_hopeless_work_is_and_quick_work_is_not_looked_into() -> None:
    machine = Machine(2)
    machine.threads.after(29.0, expected_ms=10.0)
    assert machine.looked == 0
    machine.threads.after(99.0, expected_ms=10.0)
    assert (machine.set[-1], machine.looked) == (2, 1)
    machine.threads.after(101.0, expected_ms=10.0)
    assert (machine.set[-1], machine.looked) == (1, 1)


@pytest.mark.parametrize("busy", [True, False])
def test_one_thread_is_left_alone(busy: bool) -> None:
    machine = Machine(1)
    machine.busy = busy
    machine.now += 10 * PROBE_S
    assert machine.generation() == 1
    machine.threads.after(10_000.0, expected_ms=10.0)
    assert machine.looked == 0
