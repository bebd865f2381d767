"""A raw client of the daemon's socket: frames out, frames in, nothing else.

with WireClient(socket_path) as client:
    client.hello()                                   # Welcome, and remembered
    client.send(wire.Open("file:///w/a.py", "python", 1, "text"))
    answer = client.complete("file:///w/a.py", 1, offset=4)          # sends and waits
    client.expect(wire.State, lambda s: s.state == "ready")          # next one that fits
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from copilotd import wire

Message = TypeVar("Message", bound=wire.FromDaemon)


class WireClient:
    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._timeout = timeout
        self._buffer = bytearray()
        self._ids = 0
        self.seen: list[wire.FromDaemon] = []
        """everything received so far, in order"""
        self._unread: list[wire.FromDaemon] = []

    def send(self, *messages: wire.FromFront) -> None:
        self._socket.sendall(b"".join(wire.frame(message) for message in messages))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hello(self, role: str = "editor", version: str = "0.1.0") -> wire.Welcome:
        self.send(wire.Hello(version, role, editor="raw"))  # type: ignore[arg-type]
        return self.expect(wire.Welcome)

    def expect(self, kind: type[Message], fits: Callable[[Message], bool] = lambda message: True) -> Message:
        """The next unread message of this kind that fits; others stay unread. TimeoutError, EOFError."""
        end = time.monotonic() + self._timeout
        while True:
            for index, message in enumerate(self._unread):
                if isinstance(message, kind) and fits(message):
                    del self._unread[index]
                    return message
            self._receive(end)

    def ready(self) -> wire.State:
        """Wait until the models are loaded."""
        return self.expect(wire.State, lambda state: state.state == "ready")

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def ask(self, uri: str, version: int, offset: int, **fields: object) -> int:
        """Send a Complete; its id."""
        number = self.next_id()
        self.send(wire.Complete(id=number, uri=uri, version=version, offset=offset, **fields))  # type: ignore[arg-type]
        return number

    def answer(self, number: int) -> wire.Answer:
        return self.expect(wire.Answer, lambda answer: answer.id == number)

    def complete(self, uri: str, version: int, offset: int, **fields: object) -> wire.Answer:
        return self.answer(self.ask(uri, version, offset, **fields))

    def closed(self) -> bool:
        """True once the daemon has closed this connection."""
        try:
            while True:
                self._receive(time.monotonic() + self._timeout)
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False

    def drain(self, seconds: float) -> list[wire.FromDaemon]:
        """What else arrives within so many seconds."""
        try:
            while True:
                self._receive(time.monotonic() + seconds)
        except TimeoutError:
            unread, self._unread = self._unread, []
            return unread

    def _receive(self, end: float) -> None:
        while True:
            if len(self._buffer) >= wire.HEADER.size:
                stop = wire.HEADER.size + wire.frame_length(bytes(self._buffer[: wire.HEADER.size]))
                if len(self._buffer) >= stop:
                    message = wire.from_daemon(bytes(self._buffer[wire.HEADER.size : stop]))
                    del self._buffer[:stop]
                    self.seen.append(message)
                    self._unread.append(message)
                    return
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the daemon said nothing that fits")
            self._socket.settimeout(left)
            data = self._socket.recv(65536)
            if not data:
                raise EOFError("the daemon closed the connection")
            self._buffer += data

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
