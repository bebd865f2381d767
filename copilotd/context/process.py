"""The daemon's side of the context process: starts it, tells it what is open, starts it again when it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from copilotd.context.index import IndexReader, View, allocate, nearness
from copilotd.context.messages import (
    Ask,
    Begin,
    Buffer,
    Folders,
    Frames,
    FromContext,
    Progress,
    Skipped,
    Snippet,
    Snippets,
    ToContext,
    Visible,
    Warned,
    encode,
)
from copilotd.context.tree import language_of

log = logging.getLogger("copilotd")

END_S = 1.0
"""how long the socket loop waits for a killed process: one that hangs in a dead network folder may never end"""
RESTARTS = 5
"""A process that keeps dying is not started more often; completion goes on without a workspace."""


class Library:
    """What one session may look up for one file: `engine.generation.Library` over the shared index."""

    def __init__(self, reader: IndexReader, view: View, path: str) -> None:
        self._reader, self._view = reader, view
        self._language, self._near = language_of(path), nearness(path)

    def find(self, tail: Sequence[int], limit: int) -> tuple[list[int], int]:
        """Ids that followed the longest match of the end of `tail`, and its length; ([], 0) for none."""
        match = self._reader.find(tail, limit, self._view, self._language, self._near)
        return ([], 0) if match is None else (match.ids, match.length)


class ContextProcess:
    """Owned by the socket loop; `library` and `snippets` may be read from the engine's thread."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """`folder`: the process's working directory, outside every workspace."""
        self._folder = folder
        self._warn = warn
        self._begin: Begin | None = None
        self._here: set[str] = set()
        self._folders: dict[str, Folders] = {}
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._views: dict[str, View] = {}
        self._snippets: dict[tuple[str, str], tuple[Snippet, ...]] = {}
        self._reader: IndexReader | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._starts = 0
        self.progress = Progress()

    # ---- what the daemon tells ---------------------------------------------------------------------------

    async def begin(self, tokenizer: str, secrets_allowed: tuple[str, ...], verbose: bool = False) -> None:
        """Start, or start anew if the tokenizer or the rule of secrets has changed."""
        begin = Begin(tokenizer, secrets_allowed, verbose)
        if begin != self._begin:
            self._begin = begin
            self._starts = 0
            await self._restart()

    def folders(self, client: str, paths: tuple[str, ...]) -> None:
        self._here.add(client)
        self._folders[client] = Folders(client, paths)
        self._send(self._folders[client])

    def buffer(self, client: str, path: str, language: str, text: str | None) -> None:
        self._here.add(client)
        buffer = Buffer(client, path, language, text)
        if text is None:
            self._buffers.pop((client, path), None)
            self._snippets.pop((client, path), None)
        else:
            self._buffers[client, path] = buffer
        self._send(buffer)

    def forget_snippets(self, client: str) -> None:
        """What they show may no longer be seen."""
        for key in [key for key in self._snippets if key[0] == client]:
            del self._snippets[key]

    def leave(self, client: str) -> None:
        """The session has ended: nothing of it stays."""
        for _, path in [key for key in self._buffers if key[0] == client]:
            self.buffer(client, path, "", None)
        if self._folders.pop(client, None) is not None:
            self._send(Folders(client, ()))
        self._views.pop(client, None)
        self.forget_snippets(client)
        self._here.discard(client)

    def ask(self, ask: Ask) -> None:
        """The answer is there later, in `snippets`."""
        self._send(ask)

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None else self._process.pid

    # ---- what a completion reads -------------------------------------------------------------------------

    def library(self, client: str, path: str) -> Library | None:
        """None while nothing is indexed for this session."""
        reader, view = self._reader, self._views.get(client)
        if reader is None or view is None:
            return None
        return Library(reader, view.around(path), path)

    def snippets(self, client: str, path: str) -> tuple[Snippet, ...]:
        """As last answered for this document."""
        return self._snippets.get((client, path), ())

    # ---- the process -------------------------------------------------------------------------------------

    async def close(self) -> None:
        self._begin = None
        self._stop()
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None

    async def _restart(self) -> None:
        self._stop()
        if self._begin is None:
            return
        self._starts += 1
        index = allocate()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "copilotd.context.service", str(theirs.fileno()), str(index)]
        try:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), index),
                umask=0o077,
            )
            self._reader = IndexReader(index)
        finally:
            theirs.close()
            os.close(index)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._send(self._begin)
        for folders in self._folders.values():
            self._send(folders)
        for buffer in self._buffers.values():
            self._send(buffer)
        self._listening = asyncio.create_task(self._listen(reader, self._process))

    def _send(self, message: ToContext) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _listen(self, reader: asyncio.StreamReader, process: subprocess.Popen[bytes]) -> None:
        frames = Frames(FromContext)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for message in frames.feed(data):
                    self._receive(message)
        if self._process is not process or self._begin is None:
            return  # we ended it
        if self._starts <= RESTARTS:
            await asyncio.sleep(0.1 * 2**self._starts)
            if self._process is process:
                await self._restart()
        else:
            self._stop()
            self._warn("The workspace index keeps failing and is off until the next `copilotd reload`.")

    def _receive(self, message: FromContext) -> None:
        match message:
            case Visible() | Snippets() if message.client not in self._here:
                pass  # said before the process heard that the session has ended
            case Visible():
                self._views[message.client] = View(
                    message.roots, message.owner, frozenset(message.hidden), message.buffers
                )
            case Snippets():
                self._snippets[message.client, message.path] = message.snippets
            case Progress():
                self.progress = message
            case Skipped():
                log.debug("not read: %s (%s)", message.path, message.why)
            case Warned():
                self._warn(message.text)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._views.clear()
        self._reader = None  # a completion that still holds it goes on reading; then the memory is freed
        if process is not None:
            process.kill()  # it keeps nothing; one that is stopped would not hear a request to end
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
