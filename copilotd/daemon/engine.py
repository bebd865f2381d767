"""The engine thread: the only one that touches models, one request at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from copilotd.backends.base import BackendError
from copilotd.completion.ask import Completion
from copilotd.daemon.loading import Models, is_lost_device, is_out_of_memory
from copilotd.daemon.log import log, place
from copilotd.daemon.platform import on_battery
from copilotd.daemon.scheduler import Job, Scheduler

R = TypeVar("R")

AWAY = "away"
"""the word for a backend that cannot answer now and has said why"""


class Engine(threading.Thread):
    """Takes work from the scheduler until that is closed.

    `finished(job, completion, error)` is called on this thread after every request: with a completion, or
    with the word that counts the failure. `lost` is called once, when the device needs a new process.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        models: Models,
        finished: Callable[[Job, Completion | str], None],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(name="engine", daemon=True)
        self._scheduler = scheduler
        self._models = models
        self._finished = finished
        self._lost = lost
        self._device_lost = False

    def run(self) -> None:
        try:
            self._work()
        except BaseException:
            self._lost()  # a daemon whose engine has ended answers nobody
            raise

    def _work(self) -> None:
        idle_work = False
        while not self._device_lost:
            work = self._scheduler.take(wait=not idle_work)
            if isinstance(work, Job):
                outcome = self._complete(work)
                self._scheduler.done()
                self._finished(work, outcome)
                idle_work = True
            elif work is not None:
                self._guard(work)
            elif self._scheduler.closed:
                return
            else:
                idle_work = bool(self._guard(self._idle))
        self._lost()

    def _complete(self, job: Job) -> Completion | str:
        completer = self._models.completer
        if completer is None:
            return self._models.state.state
        try:
            completion = completer.complete(job.ask, job.is_cancelled, self._deadline(job))
            if completion.explanation.counters.target_steps:
                self._models.well()
            return completion
        except Exception as error:
            word = self._failed(error)
        substitute = self._models.substitute
        if word != AWAY or substitute is None:
            return word
        try:
            return substitute.complete(job.ask, job.is_cancelled, self._deadline(job))
        except Exception as error:
            return self._failed(error)

    def _deadline(self, job: Job) -> float | None:
        """A request that waited for others still gets a quarter of its time."""
        latency = job.ask.settings.max_latency_ms / 1000
        return max(job.arrived + latency, time.monotonic() + latency / 4) if latency else None

    def _idle(self) -> bool:
        completer = self._models.completer
        return completer is not None and not on_battery() and completer.idle(self._scheduler.busy)

    def _guard(self, work: Callable[[], R]) -> R | None:
        try:
            return work()
        except Exception as error:
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> str:
        """Deal with what the models threw; the word that `status` counts."""
        if isinstance(error, BackendError) and not is_out_of_memory(error):
            self._models.trouble(error)
            return AWAY
        log.error("the engine failed: %s", place(error))
        if is_out_of_memory(error):
            self._models.give_back()
            return "memory"
        if is_lost_device(error):
            self._device_lost = True
            return "device"
        return "error"
