"""How many torch threads work gets: one while a neighbour is busy.

Several threads wait for each other at the end of every product. Where one of them has no core to itself, each
wait lasts a tick of the scheduler, and a step of a few milliseconds takes a second; one thread waits for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from copilotd.engine.calibration import BUSY_MS, barrier_ms

FAR = 3.0
"""Work that takes so many times what was measured at load is looked into."""
HOPELESS = 10.0
"""Work that takes so many times as long is no long context: it needs no other proof."""
PROBE_S = 5.0
"""With one thread, how often it is tried whether the neighbour has gone."""


class Threads:
    """Asked before and told after each generation, never within one; a step's bits do not depend on it."""

    def __init__(
        self,
        most: int,
        set_threads: Callable[[int], None] = torch.set_num_threads,
        barrier: Callable[[], float] = barrier_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` threads are fastest on an idle machine; `barrier` measures how long the present ones wait for
        each other, in milliseconds."""
        self.now = self._most = most
        self._set, self._barrier, self._clock = set_threads, barrier, clock
        self._probe_at = 0.0
        set_threads(most)

    def before(self) -> None:
        """After a while on one thread: all of them again, if they no longer wait."""
        if self.now < self._most and self._clock() >= self._probe_at:
            self._use(self._most)
            self._one_if_busy()

    def after(self, spent_ms: float, expected_ms: float) -> None:
        """Slow work alone is no proof: the context may be long. That the threads wait is."""
        if self.now > 1 and spent_ms > HOPELESS * expected_ms:
            self._one()
        elif self.now > 1 and spent_ms > FAR * expected_ms:
            self._one_if_busy()

    def _one_if_busy(self) -> None:
        if self._barrier() > BUSY_MS:
            self._one()

    def _one(self) -> None:
        self._use(1)
        self._probe_at = self._clock() + PROBE_S

    def _use(self, threads: int) -> None:
        self.now = threads
        self._set(threads)
