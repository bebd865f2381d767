"""Engine steps while the context process indexes, against steps while it is stopped, in windows in turn."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from msgspec import Struct

STOPPED_S = 0.05
"""until a signal has been heeded"""


class Beside(Struct):
    """Steps of each window."""

    alone: list[int]
    beside: list[int]
    busy_s: float
    """processor time that the indexing took in its windows"""

    @property
    def share(self) -> float:
        """Steps with indexing over steps without, by their medians."""
        return median(self.beside) / median(self.alone)


def engine_steps(step: Callable[[], object], pid: int, windows: int, window_s: float) -> Beside:
    """`pid` indexes all the time; every second window it is stopped, the first one too."""
    found = Beside([], [], 0.0)
    try:
        for number in range(2 * windows):
            indexing = number % 2 == 1
            os.kill(pid, signal.SIGCONT if indexing else signal.SIGSTOP)
            time.sleep(STOPPED_S)
            before = processor_s(pid)
            (found.beside if indexing else found.alone).append(_steps(step, window_s))
            if indexing:
                found.busy_s += processor_s(pid) - before
    finally:
        os.kill(pid, signal.SIGCONT)
    return found


def _steps(step: Callable[[], object], window_s: float) -> int:
    end, done = time.perf_counter() + window_s, 0
    while time.perf_counter() < end:
        step()
        done += 1
    return done


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
