"""Which of the texts that a person took are still there half a minute later."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

KEPT_AFTER_S = 30.0
NEAR = 4000
"""characters by which a text may have moved"""
REMEMBERED = 256
"""texts waited for at one time"""


class Taken(Struct, frozen=True):
    client: str
    uri: str
    language: str
    start: int
    """where it was inserted"""
    text: str
    at: float
    """when, by the clock of `due`"""


class Takings:
    """In memory only, and no longer than it takes."""

    def __init__(self) -> None:
        self._waiting: list[Taken] = []

    def add(self, taken: Taken) -> None:
        if taken.text.strip():  # white space is no text to be kept
            self._waiting = [*self._waiting, taken][-REMEMBERED:]

    def due(
        self, now: float, current: Callable[[str, str], str | None]
    ) -> Iterator[tuple[Taken, bool | None]]:
        """Those whose time is up, and whether they are kept; None where nobody can say any more.

        `current(client, uri)` gives a document's text, None if it is not open.
        """
        yield from self._judged([one for one in self._waiting if now - one.at >= KEPT_AFTER_S], current)

    def closing(
        self, client: str, uri: str | None, current: Callable[[str, str], str | None]
    ) -> Iterator[tuple[Taken, bool | None]]:
        """A document, or all of a client's, is about to be closed: judged as it is."""
        mine = [one for one in self._waiting if one.client == client and uri in (None, one.uri)]
        yield from self._judged(mine, current)

    def _judged(
        self, ended: list[Taken], current: Callable[[str, str], str | None]
    ) -> Iterator[tuple[Taken, bool | None]]:
        self._waiting = [one for one in self._waiting if one not in ended]
        for one in ended:
            text = current(one.client, one.uri)
            yield one, None if text is None else is_in(text, one)


def is_in(document: str, taken: Taken) -> bool:
    """White space does not count: formatters change it."""
    around = document[max(0, taken.start - NEAR) : taken.start + len(taken.text) + NEAR]
    return _bare(taken.text) in _bare(around)


def _bare(text: str) -> str:
    return "".join(text.split())
