"""Which request the engine thread takes next: per client the newest only, clients in turn.

The socket loop submits and cancels, the engine thread takes; one condition guards both. A request that was
cancelled or superseded is gone before the engine looks. After a request that lived less than SETTLE_S
(a storm: no hand types like that) the next one waits as long for its successor, so a burst of hundreds
starts the model for the first and the last of them. Where a slow machine tears the burst, one that has waited
is started and ends at once: then the next one waits twice as long. Who ends one later than that is a hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from copilotd.completion.ask import Ask

SETTLE_S = 0.02
SETTLE_MOST_S = 0.08

TURN_S = 1.0
"""A client whose request is superseded while it runs goes on with the newer one, for so long: its caches are
warm for it. At the end of the line again it would be superseded there too, and typists at many windows would
never see an answer."""

Chore: TypeAlias = Callable[[], None]
"""Other work of the engine thread: load, unload, forget a document."""


@dataclass(eq=False)
class Job:
    client: str
    id: int
    ask: Ask
    explain: bool = False
    arrived: float = field(default_factory=time.monotonic)
    started: float = 0.0
    """when the engine took it"""
    not_before: float = 0.0
    cancelled: bool = False

    def is_cancelled(self) -> bool:
        return self.cancelled


@dataclass(frozen=True)
class Storm:
    """Of a client whose last request ended as soon as it could begin."""

    until: float
    """a request that arrives before belongs to it"""
    wait: float
    """seconds, for its successor"""


class Scheduler:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Job] = {}
        self._chores: list[Chore] = []
        self._running: Job | None = None
        self._storms: dict[str, Storm] = {}
        self._served: dict[str, int] = {}
        self._turn = 0
        self._holder = ""
        """the client whose turn it is"""
        self._turn_ends = 0.0
        self._closed = False

    # ---- from the socket loop ----

    def submit(self, job: Job) -> list[Job]:
        """Queue a request; the client's older ones, which it supersedes, to be answered by the caller."""
        with self._changed:
            superseded = self._drop(job.client)
            storm = self._storms.get(job.client)
            if storm and job.arrived < storm.until:
                job.not_before = job.arrived + storm.wait
            self._waiting[job.client] = job
            self._changed.notify()
        return superseded

    def supersede(self, client: str) -> list[Job]:
        """A newer request of the client was answered without the engine: its older ones end."""
        with self._changed:
            return self._drop(client)

    def cancel(self, client: str, number: int) -> Job | None:
        """The cancelled request, if it was still waiting or running."""
        with self._changed:
            for job in (self._waiting.get(client), self._running):
                if job is not None and (job.client, job.id) == (client, number) and not job.cancelled:
                    self._end(job)
                    return job
        return None

    def leave(self, client: str) -> list[Job]:
        """The client is gone, and so are its requests."""
        with self._changed:
            dropped = self._drop(client)
            self._storms.pop(client, None)
            self._served.pop(client, None)
        return dropped

    def cancel_all(self) -> list[Job]:
        """Every request waiting or running."""
        with self._changed:
            clients = [*self._waiting, *([self._running.client] if self._running else [])]
            return [job for client in dict.fromkeys(clients) for job in self._drop(client)]

    def call(self, chore: Chore) -> None:
        """Have the engine thread do something between two requests, before any that wait."""
        with self._changed:
            self._chores.append(chore)
            self._changed.notify()

    def close(self) -> None:
        """The engine thread ends after the chores that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _drop(self, client: str) -> list[Job]:
        jobs = [self._waiting.get(client), self._running]
        dropped = [job for job in jobs if job and job.client == client and not job.cancelled]
        for job in dropped:
            self._end(job)
        return dropped

    def _end(self, job: Job) -> None:
        job.cancelled = True
        if self._waiting.get(job.client) is job:
            del self._waiting[job.client]
        now = time.monotonic()
        waited = max(0.0, job.not_before - job.arrived)
        if now - job.arrived < SETTLE_S:
            wait = max(SETTLE_S, waited)
        elif job.started and now - job.not_before < SETTLE_S and 0 < 2 * waited <= SETTLE_MOST_S:
            wait = 2 * waited
        else:
            self._storms.pop(job.client, None)
            return
        self._storms[job.client] = Storm(now + wait, wait)

    # ---- from the engine thread ----

    def take(self, wait: bool = True) -> Job | Chore | None:
        """The next work. None: nothing there (without `wait`), or closed."""
        with self._changed:
            while True:
                if self._chores:
                    return self._chores.pop(0)
                if self._closed:
                    return None
                now = time.monotonic()
                if due := [job for job in self._waiting.values() if job.not_before <= now]:
                    return self._start(self._next(due, now))
                if not wait:
                    return None
                soonest = min((job.not_before for job in self._waiting.values()), default=None)
                self._changed.wait(None if soonest is None else soonest - now)

    def _next(self, due: list[Job], now: float) -> Job:
        if now < self._turn_ends:
            for job in due:
                if job.client == self._holder:
                    return job
        job = min(due, key=lambda job: self._served.get(job.client, 0))
        self._holder, self._turn_ends = job.client, now + TURN_S
        return job

    def _start(self, job: Job) -> Job:
        del self._waiting[job.client]
        self._turn += 1
        self._served[job.client] = self._turn
        self._running = job
        job.started = time.monotonic()
        return job

    def done(self) -> None:
        """The job that was taken is worked off: it cannot be cancelled or superseded any more."""
        with self._changed:
            if self._running is not None and not self._running.cancelled:
                self._turn_ends = 0.0
            self._running = None

    def busy(self) -> bool:
        """Something waits: idle work must end. Looked at between forward steps, so without the lock."""
        return bool(self._waiting or self._chores or self._closed)

    @property
    def closed(self) -> bool:
        return self._closed
