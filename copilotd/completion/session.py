"""What completion remembers of a document: suggestions by their place, so that typing on needs no model."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from copilotd.completion.anchor import Follow, follow
from copilotd.completion.ask import Ask
from copilotd.completion.postprocess import Scope
from copilotd.completion.window import unix
from copilotd.config import SessionSettings

BEFORE = 512
"""characters above a place that must still stand there"""
AFTER = 128
TYPED = 4096
"""characters typed since, at most"""
ENTRIES = 32


class Spot(Struct, frozen=True):
    """A place in a document, known again by the text around it."""

    offset: int
    before: str
    after: str
    to_the_end: bool
    settings: SessionSettings

    @classmethod
    def of(cls, ask: Ask) -> Spot:
        return cls(
            offset=ask.offset,
            before=ask.text[max(0, ask.offset - BEFORE) : ask.offset],
            after=ask.text[ask.offset : ask.offset + AFTER],
            to_the_end=ask.offset + AFTER >= len(ask.text),
            settings=ask.settings,
        )

    def typed_since(self, ask: Ask) -> tuple[str, Follow] | None:
        """What was typed here, "\\n" line ends, and what became of the closers after the cursor.

        None when the text differs in anything else.
        """
        if not 0 <= ask.offset - self.offset <= TYPED or ask.settings != self.settings:
            return None
        if not ask.text.startswith(self.before, self.offset - len(self.before)):
            return None
        found = follow(ask.text, ask.offset, self.after, self.to_the_end)
        return None if found is None else (unix(ask.text[self.offset : ask.offset]), found)


class Entry(Struct, frozen=True):
    """A suggestion for a spot; "" where the model had none."""

    spot: Spot
    text: str
    covers: int = 0
    scope: Scope = "block"
    reason: str = ""
    drawn: bool = False
    """an alternative, drawn when somebody asked by hand"""


class Recalled(Struct, frozen=True):
    """What is left of an entry at a later place."""

    entry: Entry
    text: str
    covers: int
    closers_came: bool
    """the editor inserted closers since: the text was not made for what stands after the cursor now"""


class Memory:
    """Suggestions of one document, several per position as they came; the oldest go."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=ENTRIES)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def forget_empty(self) -> None:
        """A better prompt may have an answer where the last one had none."""
        self._entries = deque((entry for entry in self._entries if entry.text), maxlen=ENTRIES)

    def recall(self, ask: Ask) -> Recalled | None:
        """The newest suggestion that the text typed since is a beginning of, and more is left."""
        return next(self.recalls(ask), None)

    def recalls(self, ask: Ask) -> Iterator[Recalled]:
        """All of those, the newest first."""
        for entry in reversed(self._entries):
            since = entry.spot.typed_since(ask)
            if since is None:
                continue
            typed, found = since
            if not entry.text and not typed and found == Follow():
                yield Recalled(entry, "", 0, False)
            elif entry.text.startswith(typed) and len(typed) < len(entry.text):
                covers = max(0, entry.covers - found.typed_over)
                yield Recalled(entry, entry.text[len(typed) :], covers, found.inserted > 0)

    def rest(self, ask: Ask) -> str:
        """What an earlier suggestion would still write although the typist went another way."""
        for entry in reversed(self._entries):
            if entry.text and (since := entry.spot.typed_since(ask)):
                return remainder(entry.text, since[0])
        return ""


def remainder(suggested: str, typed: str) -> str:
    """What is left of a suggestion after something else was typed.

    The typist either wrote something in between, then it goes on after the same characters farther right, or
    another word, then it goes on after the suggested one.
    """
    agreed = 0
    while agreed < min(len(suggested), len(typed)) and suggested[agreed] == typed[agreed]:
        agreed += 1
    rest, other = suggested[agreed:], typed[agreed:]
    if other and (place := rest.find(other)) >= 0:
        return rest[place + len(other) :]
    word = re.match(r"\w*", rest)
    return rest[word.end() :] if word and other else rest
