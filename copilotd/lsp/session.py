"""What one editor window has: open documents, folders, settings, and at most one pending request.

The session is the truth; the daemon holds a copy of what it needs, sent anew on every connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from copilotd import wire
from copilotd.config import SessionSettings
from copilotd.lsp.document import Document, Edit, Place
from copilotd.lsp.link import Link, Request, empty
from copilotd.lsp.text import Encoding, without_lone_surrogates
from copilotd.lsp.uris import same_spelling
from copilotd.version import version

Trigger = Literal["automatic", "invoked"]


class Selected(NamedTuple):
    """The popup's highlighted entry."""

    start: Place
    end: Place
    text: str


class Formatting(NamedTuple):
    tab_size: int | None = None
    insert_spaces: bool | None = None


class _Pending(NamedTuple):
    document: Document
    request: Request

    def end(self) -> None:
        self.request.settle(wire.Answer(self.request.id, (), "superseded"))


class Session:
    def __init__(self, settings: SessionSettings) -> None:
        self.editor = ""
        self.encoding: Encoding = "utf-16"
        self.documents: dict[str, Document] = {}
        """by the one spelling of their URI"""
        self.settings = settings
        self.folders: tuple[wire.Folder, ...] = ()
        self.paused = False
        self._link: Link | None = None
        self._completion: _Pending | None = None
        self._explanation: _Pending | None = None

    def attach(self, link: Link) -> None:
        self._link = link

    def greeting(self) -> Iterator[wire.FromFront]:
        yield wire.Hello(version(), "editor", self.editor)
        yield wire.Configure(self.settings, self.folders)
        if self.paused:
            yield wire.Pause(True)
        for document in self.documents.values():
            document.forgotten()
            if opened := document.opened():
                yield opened

    # ---- documents ---------------------------------------------------------------------------------------

    def document(self, uri: str) -> Document | None:
        """The open document, however its URI is spelled."""
        return self.documents.get(same_spelling(uri))

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        uri = same_spelling(uri)
        if before := self.documents.get(uri):
            self._end_requests(before)
        document = self.documents[uri] = Document(uri, language, version, text, self.encoding)
        self._send(document.opened())

    def change(self, uri: str, version: int, edits: Sequence[Edit]) -> None:
        """An older version is not applied: it would undo what came after it."""
        document = self.document(uri)
        if document is None or version < document.version:
            return
        if edits:
            self._end_requests(document)
        self._send(document.change(version, edits) or document.opened())

    def close(self, uri: str) -> None:
        if document := self.documents.pop(same_spelling(uri), None):
            self._end_requests(document)
            self._send(wire.Close(document.uri))

    def saved(self, uri: str) -> None:
        """The index sees the disk itself: only a recorder wants to know."""

    # ---- settings ----------------------------------------------------------------------------------------

    def configure(self, settings: SessionSettings, folders: tuple[wire.Folder, ...]) -> None:
        if (settings, folders) != (self.settings, self.folders):
            self.settings, self.folders = settings, folders
            self._send(wire.Configure(settings, folders))

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self._send(wire.Pause(paused))

    def ask_offer(self) -> None:
        self._send(wire.AskOffer())

    def accepted(self, item: str, length: int | None) -> None:
        self._send(wire.Accepted(item, length))

    # ---- requests ----------------------------------------------------------------------------------------

    def complete(
        self,
        document: Document,
        place: Place,
        trigger: Trigger,
        selected: Selected | None = None,
        formatting: Formatting | None = None,
    ) -> Request:
        """Ask for a completion. It takes the place of the one pending, and an edit ends it.

        It is sent once all that has already arrived from the editor was read, so a request that is cancelled
        or superseded in the same breath never reaches the daemon.
        """
        if self._completion:
            self._completion.end()
        request = self._request(document, place, trigger, selected, formatting)
        self._completion = _Pending(document, request)
        asyncio.get_running_loop().call_soon(self._ask, request)
        return request

    def explain(self, document: Document, place: Place) -> Request:
        """Ask how a completion there comes about. Completions leave it alone; an edit ends it."""
        if self._explanation:
            self._explanation.end()
        request = self._request(document, place, "automatic", explain=True)
        self._explanation = _Pending(document, request)
        self._ask(request)
        return request

    def cancel(self, request: Request) -> None:
        if self._link:
            self._link.cancel(request)

    def _request(
        self,
        document: Document,
        place: Place,
        trigger: Trigger,
        selected: Selected | None = None,
        formatting: Formatting | None = None,
        explain: bool = False,
    ) -> Request:
        offset = document.offset(place)

        def prepare(number: int) -> Iterator[wire.FromFront]:
            if opened := document.opened(offset):
                yield opened
            yield wire.Complete(
                id=number,
                uri=document.uri,
                version=document.version,
                offset=document.to_daemon(offset),
                trigger=trigger,
                selected=_to_daemon(document, selected) if selected else None,
                tab_size=formatting.tab_size if formatting else None,
                insert_spaces=formatting.insert_spaces if formatting else None,
                explain=explain,
            )

        return Request(prepare)

    def _ask(self, request: Request) -> None:
        if request.answer.done():
            return
        if self._link is None or self.paused:
            request.settle(empty("paused" if self.paused else "no daemon"))
        else:
            self._link.ask(request)

    def _end_requests(self, document: Document) -> None:
        """An answer for a text that is no longer there is no answer."""
        for pending in (self._completion, self._explanation):
            if pending and pending.document is document:
                pending.end()

    def _send(self, message: wire.FromFront | None) -> None:
        if message and self._link:
            self._link.send(message)


def _to_daemon(document: Document, selected: Selected) -> wire.Selected:
    return wire.Selected(
        document.to_daemon(document.offset(selected.start)),
        document.to_daemon(document.offset(selected.end)),
        without_lone_surrogates(selected.text),
    )
