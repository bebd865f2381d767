"""The daemon's side of the wire for tests of the front: keeps the documents it is told of, answers as bid.

It runs in a thread of the test, on a socket in the test's folder; the front finds it by `COPILOTD_SOCKET`.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from copilotd import wire


class Copy:
    """A document as the daemon has it."""

    def __init__(self, opened: wire.Open) -> None:
        self.opened = opened
        self.version = opened.version
        self.text = opened.text

    def change(self, change: wire.Change) -> None:
        self.version = change.version
        for splice in change.splices:
            assert 0 <= splice.start <= splice.end <= len(self.text)
            self.text = self.text[: splice.start] + splice.text + self.text[splice.end :]


class Asked:
    """A request with the text on either side of its cursor."""

    def __init__(self, request: wire.Complete, copy: Copy) -> None:
        assert request.version == copy.version, "the request is for another version"
        assert 0 <= request.offset <= len(copy.text)
        self.request = request
        self.copy = copy
        self.prefix = copy.text[: request.offset]
        self.suffix = copy.text[request.offset :]


def nothing(asked: Asked) -> wire.Answer:
    return wire.Answer(asked.request.id, (), "empty", "nothing")


def insert(text: str) -> Callable[[Asked], wire.Answer]:
    """Answers with an insertion at the cursor."""

    def answer(asked: Asked) -> wire.Answer:
        at = asked.request.offset
        return wire.Answer(asked.request.id, (wire.Item(f"item-{asked.request.id}", at, at, text),))

    return answer


class FakeDaemon:
    def __init__(self, socket: Path, answer: Callable[[Asked], wire.Answer | None] = nothing) -> None:
        self.socket = socket
        self.answer = answer
        """None keeps the front waiting"""
        self.heard: list[wire.FromFront] = []
        self.asked: list[Asked] = []
        self.connections = 0
        self._writers: set[StreamWriter] = set()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeDaemon:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self) -> None:
        self._run(self._listen())

    def die(self) -> None:
        """Go as a killed daemon does: no more listening, every connection closed."""
        self._run(self._die())

    def push(self, message: wire.FromDaemon) -> None:
        self._loop.call_soon_threadsafe(self._push, message)

    def wait(self, until: Callable[[], Any], seconds: float = 30.0) -> Any:
        with self._changed:
            assert self._changed.wait_for(until, seconds), "the front did not do it"
            return until()

    def of(self, kind: type) -> list[Any]:
        return [message for message in list(self.heard) if isinstance(message, kind)]

    def documents(self) -> dict[str, str]:
        """uri -> text, of the newest connection."""
        return {uri: copy.text for uri, copy in self._copies.items()}

    # ---- in the loop's thread ----------------------------------------------------------------------------

    async def _listen(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def _die(self) -> None:
        self._server.close()
        self.socket.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()

    def _push(self, message: wire.FromDaemon) -> None:
        for writer in self._writers:
            writer.write(wire.frame(message))

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        copies: dict[str, Copy] = {}
        self._copies = copies
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                message = wire.from_front(await wire.read_frame(reader))
                answer = self._take(message, copies)
                with self._changed:
                    self.heard.append(message)
                    self._changed.notify_all()
                if answer:
                    writer.write(wire.frame(answer))
        except (EOFError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _take(self, message: wire.FromFront, copies: dict[str, Copy]) -> wire.FromDaemon | None:
        match message:
            case wire.Hello():
                return wire.Welcome("test", 0)
            case wire.Open():
                copies[message.uri] = Copy(message)
            case wire.Change():
                copies[message.uri].change(message)
            case wire.Close():
                copies.pop(message.uri, None)
            case wire.Complete():
                asked = Asked(message, copies[message.uri])
                self.asked.append(asked)
                return self.answer(asked)
        return None

    def _run(self, coroutine: Any) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.result(30)
