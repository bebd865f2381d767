"""Between copilotd and the server: passes bytes on and notes when a request went in and its answer was done."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

DONE = b'"finish_reason":"'


@dataclass
class Exchange:
    """One request; times of `time.perf_counter`."""

    asked: float
    ended: float | None = None
    """when the piece with its finish_reason was passed on, or else when copilotd hung up"""
    whole: bool = False
    """the server came to its end"""

    def within(self, start: float, end: float) -> bool:
        return start <= self.asked <= end


class Relay:
    def __init__(self, port: int) -> None:
        self.exchanges: list[Exchange] = []
        self._server_port = port

    async def start(self) -> int:
        """The port to speak to."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._server_port)
        current: list[Exchange] = []

        async def questions() -> None:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    if data.startswith(b"POST /v1/completions"):
                        current[:] = [Exchange(time.perf_counter())]
                        self.exchanges.append(current[0])
                    elif current and current[0].ended is None:
                        current[0].asked = time.perf_counter()  # the body's last part
                    ours.write(data)
            for exchange in current:
                exchange.ended = exchange.ended or time.perf_counter()
            ours.close()  # a hang-up is passed on at once, which is what is measured

        async def answers() -> None:
            with suppress(ConnectionError):
                while (data := await theirs.read(1 << 16)) and not writer.is_closing():
                    writer.write(data)
                    if current and DONE in data:
                        current[0].ended, current[0].whole = time.perf_counter(), True
            writer.close()

        with suppress(asyncio.CancelledError):  # the measurement is over
            await asyncio.gather(questions(), answers())
