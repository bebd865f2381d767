"""A session that somebody listens to: what the editor says of files in the workspace, in offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from copilotd.config import SessionSettings
from copilotd.lsp.document import Document, Edit, Place, difference
from copilotd.lsp.link import Request
from copilotd.lsp.session import Formatting, Selected, Session, Trigger
from copilotd.lsp.text import Splice, Text, without_lone_surrogates
from copilotd.lsp.uris import path_of, same_spelling


class Spot(NamedTuple):
    """Where a file lies."""

    name: str
    """in the workspace: relative, under its folder's name where there are several folders"""
    folder: str
    """path of its folder; "": the window has none"""
    relative: str
    """to that folder, or to the root"""


class Witness(Protocol):
    """Who listens. Offsets are code points of the text without lone surrogates."""

    def open(self, spot: Spot, text: str) -> None: ...

    def change(self, name: str, splices: Sequence[Splice]) -> None:
        """Splices apply one after the other."""

    def complete(self, name: str, offset: int, *, invoked: bool) -> None: ...

    def cancel(self) -> None: ...

    def save(self, name: str) -> None: ...

    def close(self, name: str) -> None: ...


class RecordedSession(Session):
    def __init__(self, settings: SessionSettings, witness: Witness) -> None:
        super().__init__(settings)
        self._witness = witness
        self._texts: dict[str, tuple[Spot, Text]] = {}
        """by the one spelling of their URI: of recorded documents, a copy that follows edit by edit"""
        self._names: dict[str, str] = {}
        """whose a name is, for the whole session: the same spelling"""

    def open(self, uri: str, language: str, version: int, text: str) -> None:
        self._closed(uri)
        super().open(uri, language, version, text)
        if spot := self._spot(uri):
            spot = spot._replace(name=self._own_name(spot.name, same_spelling(uri)))
            self._texts[same_spelling(uri)] = spot, Text(text, self.encoding)
            self._witness.open(spot, without_lone_surrogates(text))

    def change(self, uri: str, version: int, edits: Sequence[Edit]) -> None:
        document = self.document(uri)
        taken = document is not None and version >= document.version
        super().change(uri, version, edits)
        if taken and (recorded := self._texts.get(same_spelling(uri))):
            spot, text = recorded
            self._witness.change(spot.name, [_applied(text, edit) for edit in edits])

    def close(self, uri: str) -> None:
        self._closed(uri)
        super().close(uri)

    def saved(self, uri: str) -> None:
        if recorded := self._texts.get(same_spelling(uri)):
            self._witness.save(recorded[0].name)

    def complete(
        self,
        document: Document,
        place: Place,
        trigger: Trigger,
        selected: Selected | None = None,
        formatting: Formatting | None = None,
    ) -> Request:
        if recorded := self._texts.get(document.uri):
            offset = document.offset(place)
            self._witness.complete(recorded[0].name, offset, invoked=trigger == "invoked")
        return super().complete(document, place, trigger, selected, formatting)

    def cancel(self, request: Request) -> None:
        self._witness.cancel()
        super().cancel(request)

    def _closed(self, uri: str) -> None:
        if recorded := self._texts.pop(same_spelling(uri), None):
            self._witness.close(recorded[0].name)

    def _own_name(self, name: str, uri: str) -> str:
        """Two files of one name, of different folders, are two files in a trace too."""
        names = chain([name], (f"{number}/{name}" for number in count(2)))
        return next(own for own in names if self._names.setdefault(own, uri) == uri)

    def _spot(self, uri: str) -> Spot | None:
        """None for what is no file of this machine, or outside the window's folders."""
        found = path_of(uri)
        if found is None:
            return None
        path = PurePosixPath(found)
        if not self.folders:
            return Spot(path.name, "", found.lstrip("/"))
        holding = [folder.path for folder in self.folders if path.is_relative_to(folder.path)]
        if not holding:
            return None
        folder = PurePosixPath(max(holding, key=lambda one: len(PurePosixPath(one).parts)))
        relative = str(path.relative_to(folder))
        return Spot(f"{folder.name}/{relative}" if len(self.folders) > 1 else relative, str(folder), relative)


def _applied(text: Text, edit: Edit) -> Splice:
    if edit.start is None or edit.end is None:
        splice = text.replace(*difference(str(text), edit.text))
    else:
        splice = text.edit(edit.start, edit.end, edit.text)
    return Splice(splice.start, splice.end, without_lone_surrogates(splice.text))
