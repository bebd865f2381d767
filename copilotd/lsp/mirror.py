"""What the daemon holds of a document: all of it or, of a large one, a window around the cursor."""

from __future__ import annotations

from typing import NamedTuple

from copilotd.lsp.text import Splice, Text

WHOLE = 5 * 1024 * 1024
"""a document of so many code points still goes whole"""
WINDOW = 1024 * 1024
"""code points of a larger one that go"""
MARGIN = 64 * 1024
"""nearer to the window's edge than this, the cursor gets a new window"""


class Mirror(NamedTuple):
    """text[start:end], in offsets of the text as it now is."""

    start: int
    end: int

    def serves(self, offset: int, length: int) -> bool:
        """Whether a completion at `offset` of a text of that length sees enough around it."""
        if length > WHOLE < self.end - self.start:
            return False
        above = self.start == 0 or offset - self.start >= MARGIN
        below = self.end == length or self.end - offset >= MARGIN
        return above and below

    def after(self, edit: Splice) -> tuple[Mirror, Splice | None] | None:
        """The mirror once the text was edited, and the edit as the daemon makes it in its copy.

        None if the edit crosses the window's edge or is too large to send: then the text is sent anew.
        """
        grown = len(edit.text) - (edit.end - edit.start)
        if self.start <= edit.start and edit.end <= self.end:
            if len(edit.text) > WHOLE:
                return None
            own = Splice(edit.start - self.start, edit.end - self.start, edit.text)
            return Mirror(self.start, self.end + grown), own
        if edit.end <= self.start:
            return Mirror(self.start + grown, self.end + grown), None
        if edit.start >= self.end:
            return self, None
        return None


def around(text: Text, offset: int) -> Mirror:
    """The part of the text that goes to the daemon for a cursor there, cut at line starts where lines allow."""
    if len(text) <= WHOLE:
        return Mirror(0, len(text))
    start = max(0, offset - WINDOW // 2)
    end = min(len(text), offset + WINDOW // 2)
    reach = WINDOW // 2 - MARGIN
    start = _or(text.line_start(start, reach), start)
    end = end if end == len(text) else _or(text.last_line_start(end, reach), end)
    return Mirror(start, end)


def _or(found: int | None, otherwise: int) -> int:
    return otherwise if found is None else found
