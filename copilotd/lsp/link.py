"""The connection to the daemon: found or started, lost and found again, without the typist noticing.

Whatever the daemon must know of this session is said anew on every connection (`greeting`), so a message
that meets no connection may be dropped. A request that meets none waits for the attempt under way; while
attempts are spaced out it is answered empty at once.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Protocol, TypeAlias

from copilotd import wire
from copilotd.lsp.faults import place

log = logging.getLogger(__name__)

Connector: TypeAlias = Callable[[], Awaitable[tuple[StreamReader, StreamWriter]]]
"""Finds or starts the daemon. Raises Unreachable or OSError."""

PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""seconds before the next attempt, by failures in a row"""
STABLE = 30.0
"""seconds after which a connection counts as a good one"""
TOLD_AFTER = 3
"""failures in a row before the person hears of it"""
CONNECT_WAIT = 5.0
"""seconds a request waits for a connection"""
ANSWER_WAIT = 60.0
"""seconds after which a daemon that does not answer counts as hung"""
CLOSE_WAIT = 0.5
"""seconds an attempt to start a daemon may take to let go"""
BACKLOG = wire.MAX_FRAME
"""bytes a daemon may leave unread before its connection is given up"""


class Unreachable(Exception):
    """No daemon can be had. The message is for the person: what is wrong and where the log lies."""


class Listener(Protocol):
    """Whom the link serves."""

    def greeting(self) -> Iterable[wire.FromFront]:
        """All that a daemon must know which knows nothing of us."""

    def heard(self, message: wire.State | wire.Notice | wire.Offer) -> None: ...


class Request:
    """A completion asked of the daemon; `answer` is set exactly once, or cancelled."""

    def __init__(self, prepare: Callable[[int], Iterable[wire.FromFront]]) -> None:
        self.prepare = prepare
        """the messages that ask, given the request's id; called when they can be sent"""
        self.answer: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self.id = 0
        """0 until it was sent"""

    def settle(self, answer: wire.Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def empty(reason: str) -> wire.Answer:
    return wire.Answer(0, (), "empty", reason)


class Link:
    def __init__(self, connect: Connector, listener: Listener) -> None:
        self._connect = connect
        self._listener = listener
        self._writer: StreamWriter | None = None
        self._ids = count(1)
        self._waiting: list[Request] = []
        self._sent: dict[int, Request] = {}
        self._failures = 0
        self._resting = False
        self._wanted = asyncio.Event()
        self._left = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_WAIT)
        self._settle_all("closed")

    def send(self, *messages: wire.FromFront) -> None:
        """Send if connected. What cannot be sent ends the connection, and the next one starts afresh."""
        if self._writer is None:
            return
        try:
            for message in messages:
                self._writer.write(wire.frame(message))
        except wire.FrameError:
            log.warning("a message is over the limit; the connection is given up")
            self._writer.transport.abort()
        if self._writer.transport.get_write_buffer_size() > BACKLOG:
            log.warning("the daemon does not read; its connection is given up")
            self._writer.transport.abort()

    def ask(self, request: Request) -> None:
        """Have the request answered: by the daemon, or empty without one."""
        loop = asyncio.get_running_loop()
        self._wanted.set()
        if self._writer is not None:
            self._send_request(request)
        elif self._resting:
            request.settle(empty("no daemon"))
        else:
            self._waiting.append(request)
            timer = loop.call_later(CONNECT_WAIT, request.settle, empty("no daemon"))
            request.answer.add_done_callback(lambda _: timer.cancel())

    def cancel(self, request: Request) -> None:
        """The editor no longer wants it."""
        if self._sent.pop(request.id, None):
            self.send(wire.Cancel(request.id))

    # ---- the connection's life ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._session()
            self._settle_all("daemon lost")
            if self._left:
                self._left = False
                self._failures = 0
                self._listener.heard(wire.State("paused", "the daemon was stopped; it starts when needed"))
                self._wanted.clear()
                await self._wanted.wait()
            await self._pause()

    async def _session(self) -> None:
        """Connect and talk until the connection ends, whatever ends it."""
        trouble = "the connection does not hold"
        writer: StreamWriter | None = None
        if self._failures < TOLD_AFTER:
            self._listener.heard(wire.State("loading", "looking for the daemon"))
        loop = asyncio.get_running_loop()
        connected = loop.time()
        try:
            reader, writer = await self._connect()
            connected = loop.time()
            await self._talk(reader, writer)
        except Unreachable as error:
            trouble = str(error)
        except (OSError, EOFError, wire.FrameError) as error:
            log.warning("no connection to the daemon: %s", type(error).__name__)
        except Exception as error:
            trouble = f"a fault of ours ({place(error)})"
            log.error("the link to the daemon failed: %s", place(error))
        finally:
            self._writer = None
            if writer:
                writer.close()
        if loop.time() - connected > STABLE and writer:
            self._failures = 0
        self._failures += 1
        if self._failures >= TOLD_AFTER:
            self._tell(trouble)

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._writer = writer
        self.send(*self._listener.greeting())
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            if not request.answer.done():
                self._send_request(request)
        while True:
            self._receive(wire.from_daemon(await wire.read_frame(reader)))

    def _receive(self, message: wire.FromDaemon) -> None:
        match message:
            case wire.Answer():
                if message.outcome == "answered":
                    self._failures = 0
                if request := self._sent.pop(message.id, None):
                    request.settle(message)
            case wire.State() | wire.Notice() | wire.Offer():
                self._listener.heard(message)
            case wire.Done():
                self._left = True
            case wire.Welcome() | wire.Report():
                pass

    def _send_request(self, request: Request) -> None:
        request.id = next(self._ids)
        self._sent[request.id] = request
        timer = asyncio.get_running_loop().call_later(ANSWER_WAIT, self._give_up, request)
        request.answer.add_done_callback(lambda _: timer.cancel())
        self.send(*request.prepare(request.id))

    def _give_up(self, request: Request) -> None:
        request.settle(empty("no answer"))
        self.cancel(request)

    def _settle_all(self, reason: str) -> None:
        lost = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for request in lost:
            request.settle(empty(reason))

    async def _pause(self) -> None:
        seconds = PAUSES[min(self._failures - 1, len(PAUSES) - 1)] if self._failures else 0.0
        self._resting = seconds > 0
        await asyncio.sleep(seconds)
        self._resting = False

    def _tell(self, trouble: str) -> None:
        self._listener.heard(wire.State("failed", trouble))
        if self._failures == TOLD_AFTER:
            self._listener.heard(
                wire.Notice("warning", f"copilotd has no daemon and goes on trying: {trouble}")
            )
