"""One open document: its text, and what the daemon is told of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from copilotd import wire
from copilotd.lsp.mirror import WHOLE, Mirror, around
from copilotd.lsp.text import Encoding, Splice, Text, without_lone_surrogates

Place = tuple[int, int]
"""line and column"""


class Edit(NamedTuple):
    """Replace what stands between two places; `start` None replaces the whole text."""

    start: Place | None
    end: Place | None
    text: str


class Document:
    def __init__(self, uri: str, language: str, version: int, content: str, encoding: Encoding) -> None:
        self.uri = uri
        self.language = without_lone_surrogates(language)
        self.version = version
        self.text = Text(content, encoding)
        self._mirror: Mirror | None = None

    def offset(self, place: Place) -> int:
        return self.text.point(*place).offset

    def change(self, version: int, edits: Sequence[Edit]) -> wire.Change | None:
        """Apply the edits one after the other. None if the daemon's copy cannot follow and needs `opened`."""
        self.version = version
        splices: list[wire.Splice] = []
        for edit in edits:
            done = self._apply(edit)
            moved = self._mirror.after(done) if self._mirror else None
            self._mirror, own = moved or (None, None)
            if own:
                splices.append(wire.Splice(own.start, own.end, without_lone_surrogates(own.text)))
        return wire.Change(self.uri, version, tuple(splices)) if self._mirror else None

    def opened(self, offset: int | None = None) -> wire.Open | None:
        """The message that gives the daemon what it needs for a completion at `offset`, if it lacks it.

        Without an offset a large document waits for its first completion.
        """
        length = len(self.text)
        if self._mirror and (offset is None or self._mirror.serves(offset, length)):
            return None
        if offset is None and length > WHOLE:
            return None
        start, end = self._mirror = around(self.text, offset or 0)
        text = without_lone_surrogates(self.text.slice(start, end))
        return wire.Open(self.uri, self.language, self.version, text, start > 0, end < length)

    def forgotten(self) -> None:
        """The daemon has lost its copy."""
        self._mirror = None

    def to_daemon(self, offset: int) -> int:
        """An offset as the daemon counts it, inside what it holds."""
        start, end = self._mirror or (0, len(self.text))
        return min(max(offset, start), end) - start

    def from_daemon(self, offset: int) -> int:
        return offset + (self._mirror.start if self._mirror else 0)

    def _apply(self, edit: Edit) -> Splice:
        if edit.start is None or edit.end is None:
            return self.text.replace(*difference(str(self.text), edit.text))
        return self.text.edit(edit.start, edit.end, edit.text)


def difference(old: str, new: str) -> Splice:
    """The smallest single splice that turns one text into the other."""
    limit = min(len(old), len(new))
    head = _longest(limit, lambda count: old.startswith(new[:count]))
    tail = _longest(limit - head, lambda count: old.endswith(new[len(new) - count :]))
    return Splice(head, len(old) - tail, new[head : len(new) - tail])


def _longest(limit: int, agrees: Callable[[int], bool]) -> int:
    """The largest count up to the limit that agrees, where every smaller one does too."""
    return bisect_left(range(1, limit + 1), True, key=lambda count: not agrees(count))
