"""LSP frames over two file descriptors, without a thread and without ever blocking the loop."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from pathlib import Path

MAX_BODY = 1 << 30
"""bytes of the largest message we read"""

_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,12})[ \t]*", re.IGNORECASE)


class BadFrame(Exception):
    """What came is no LSP frame; nothing after it can be trusted."""


async def open_input(descriptor: int) -> asyncio.StreamReader:
    """A stream over a pipe, socket, terminal or file."""
    reader = asyncio.StreamReader(limit=1 << 20)
    if _waits(descriptor):
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    else:
        reader.feed_data(Path(f"/dev/fd/{descriptor}").read_bytes())
        reader.feed_eof()
    return reader


async def read_body(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's body; None at the end of the stream. Raises BadFrame."""
    length: int | None = None
    try:
        while (line := await reader.readuntil(b"\n")).strip():
            if match := _LENGTH.fullmatch(line.strip()):
                length = int(match[1])
        if length is None or length > MAX_BODY:
            raise BadFrame("no length, or one that cannot be")
        return await reader.readexactly(length)
    except asyncio.LimitOverrunError:
        raise BadFrame("a header line without an end") from None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Output:
    """Writes at once what the editor takes and keeps the rest until it reads on."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._loop = asyncio.get_running_loop()
        self._empty = asyncio.Event()
        self._empty.set()
        self.broken = asyncio.Event()
        """the editor reads no more"""
        if _waits(descriptor):
            os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        self._rest += data
        if self._empty.is_set():
            self._empty.clear()
            self._flush()

    async def drained(self, seconds: float) -> None:
        """Wait until all is written, but no longer than that."""
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except TimeoutError:
            self._stop()

    def close(self) -> None:
        self._stop()

    def _flush(self) -> None:
        try:
            while self._rest:
                del self._rest[: os.write(self._descriptor, self._rest)]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._flush)
            return
        except OSError:
            self.broken.set()
        self._stop()

    def _stop(self) -> None:
        self._loop.remove_writer(self._descriptor)
        self._rest.clear()
        self._empty.set()


def _waits(descriptor: int) -> bool:
    """Whether it is of the kind that can be waited for: no file, and not /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
