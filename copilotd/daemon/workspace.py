"""Between the sessions and the context process: who has which folders and buffers open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from copilotd import wire
from copilotd.completion.ask import Snippet
from copilotd.config import DaemonSettings
from copilotd.context.messages import Ask, Progress
from copilotd.context.process import ContextProcess, Library
from copilotd.daemon.session import Document, path_of

SETTLE_S = 1.0
"""a buffer is taken in when it has not been told for so long: not at every keystroke"""
MAX_CHARACTERS = 1 << 20
"""a larger buffer is data, not source"""

NEARBY = 400
"""characters in which the snippets chosen stay the same"""
AROUND = 4000
"""characters on each side whose names count, and which need not be shown again"""
NAMES = 48

_NAME = re.compile(r"[A-Za-z_$][\w$]{2,}")


class Workspace:
    """Owned by the socket loop. With `index = false`, or where nobody wants any of it, it does nothing."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._process = ContextProcess(folder, warn)
        self._due: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._looked: dict[tuple[str, str], tuple[int, Progress]] = {}
        """where snippets were last chosen for, and what the index held then"""
        self._starting: asyncio.Task[None] | None = None

    @property
    def progress(self) -> Progress:
        return self._process.progress

    def begin(self, tokenizer: str, settings: DaemonSettings, snippets: bool = False) -> None:
        """The models are there, and so is what to tokenise with; or `snippets` alone are wanted."""
        if (tokenizer or snippets) and settings.index:
            self._starting = asyncio.create_task(
                self._process.begin(
                    tokenizer, settings.secrets_allowed, verbose=settings.log_level == "debug"
                )
            )

    async def close(self) -> None:
        for handle in self._due.values():
            handle.cancel()
        if self._starting is not None:
            await self._starting
        await self._process.close()

    def configured(self, client: str, folders: tuple[wire.Folder, ...]) -> None:
        self._process.folders(client, tuple(folder.path for folder in folders if folder.trusted))
        self._process.forget_snippets(client)
        self._look_again(client)

    def opened(self, client: str, uri: str, document: Document) -> None:
        self._forget(client, uri)
        if document.secret or len(document.text) > MAX_CHARACTERS:
            self._process.buffer(client, _key(uri), document.language, None)
            self._process.forget_snippets(client)
        else:
            self._process.buffer(client, _key(uri), document.language, document.text)
        self._look_again(client, uri)

    def changed(self, client: str, uri: str, current: Callable[[], Document | None]) -> None:
        """`current` gives the document as it is when its turn comes."""
        if (client, uri) in self._due:
            return

        def tell() -> None:
            document = current()
            if document is not None:
                self.opened(client, uri, document)

        self._due[client, uri] = asyncio.get_running_loop().call_later(SETTLE_S, tell)

    def closed(self, client: str, uri: str) -> None:
        self._forget(client, uri)
        self._looked.pop((client, uri), None)
        self._process.buffer(client, _key(uri), "", None)
        self._look_again(client)

    def left(self, client: str) -> None:
        for owner, uri in [key for key in self._due if key[0] == client]:
            self._forget(owner, uri)
        self._look_again(client)
        self._process.leave(client)

    def library(self, client: str, uri: str) -> Library | None:
        return self._process.library(client, _key(uri))

    def snippets(self, client: str, uri: str) -> tuple[Snippet, ...]:
        """As last chosen for this document."""
        found = self._process.snippets(client, _key(uri))
        return tuple(Snippet(one.path, one.text) for one in found)

    def look_around(self, client: str, uri: str, document: Document, offset: int) -> None:
        """Have snippets chosen for a place, unless that was done for one nearby and nothing has changed."""
        place = offset // NEARBY, self.progress
        if document.secret or self._looked.get((client, uri)) == place:
            return
        self._looked[client, uri] = place
        near = document.text[max(0, offset - AROUND) : offset + AROUND]
        self._process.ask(
            Ask(client, _key(uri), document.language, names_near(near, min(offset, AROUND)), near)
        )

    def _look_again(self, client: str, uri: str = "") -> None:
        """Something that snippets may come from has changed: anew for all documents but its own."""
        for key in [key for key in self._looked if key[0] == client and key[1] != uri]:
            del self._looked[key]

    def _forget(self, client: str, uri: str) -> None:
        handle = self._due.pop((client, uri), None)
        if handle is not None:
            handle.cancel()


def names_near(text: str, cursor: int) -> tuple[str, ...]:
    """The identifiers of a text, the nearest to the cursor first."""
    found: dict[str, int] = {}
    for match in _NAME.finditer(text):
        distance = max(match.start() - cursor, cursor - match.end())
        name = match[0]
        found[name] = min(distance, found.get(name, distance))
    return tuple(sorted(found, key=found.__getitem__)[:NAMES])


def _key(uri: str) -> str:
    """A file's absolute path; any other document's URI."""
    return str(PurePosixPath(path_of(uri))) if uri.startswith("file:") else uri
