"""A copy in progress: where in its source the writer is, past what was changed on the way.

A match of the last ids breaks at every id that differs, and an adapted copy differs in every other line: a
name, a literal, a word more. So the source is kept, what is written is followed along it, and after a change
the copy goes on where the source says again what was written last. What was put for what is remembered, and
put there again the next time.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

AHEAD = 256
"""ids of a source that are kept"""
REACH = 16
"""ids of the source that one change may replace or pass over"""
LONGEST_CHANGE = 24
"""ids written that agree with nothing: then the copy has ended"""
PAIR = 6
"""ids on either side of a change that is remembered"""
PAIRS = 64
"""remembered of one document"""
TRUSTED = 4
"""a pair's score goes no higher, so that a change of mind is soon noticed"""


class Changes:
    """What was written for what, of one document. The engine knows no text: names are runs of ids."""

    def __init__(self) -> None:
        self._put: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {}
        """by the first id of what is replaced"""
        self._score: dict[tuple[int, ...], int] = {}

    def fork(self) -> Changes:
        other = Changes()
        other._put = {first: dict(known) for first, known in self._put.items()}
        other._score = dict(self._score)
        return other

    def remember(self, was: tuple[int, ...], now: tuple[int, ...]) -> None:
        if not was or not 0 < max(len(was), len(now)) <= PAIR or was == now:
            return
        if self._put.setdefault(was[0], {}).get(was) != now:
            self._put[was[0]][was] = now
            self._score.pop(was, None)
        self._score[was] = min(self._score.pop(was, 0) + 1, TRUSTED)  # the newest last
        if len(self._score) > PAIRS:
            oldest = next(iter(self._score))
            del self._score[oldest], self._put[oldest[0]][oldest]

    def doubt(self, was: tuple[int, ...]) -> None:
        """This time it was left as it is."""
        self._score[was] -= 1
        if self._score[was] <= 0:
            del self._score[was], self._put[was[0]][was]

    def at(self, source: Sequence[int], place: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The longest run of ids at a place that was replaced before, and by what."""
        known = self._put.get(source[place]) if place < len(source) else None
        if not known:
            return None
        here = tuple(source[place : place + PAIR])
        fitting = [was for was in known if here[: len(was)] == was]
        return (longest := max(fitting, key=len), known[longest]) if fitting else None


class Copy(Struct):
    """`source` is what may come; everything before `place` has been written, as it is or changed."""

    changes: Changes
    source: list[int] = field(default_factory=list)
    name: str = ""
    """the source of drafts that it counts as"""
    place: int = 0
    agreed: int = 0
    """ids in a row that came as expected; a change halves what was before it"""
    _change: list[int] = field(default_factory=list)
    """written since the source was left, until it is found again for sure"""
    _left: int = 0
    """where the source was left"""
    _before: int = 0
    """`agreed` when it was left"""
    _due: list[int] = field(default_factory=list)
    """the rest of a replacement that has begun"""

    @property
    def lost(self) -> bool:
        """Left, and nothing of what was written since stands in the source's next ids."""
        return bool(self._change) and self.agreed == 0

    def start(self, source: list[int], name: str, match: int) -> None:
        """What followed a match of so many ids."""
        self.source, self.name, self.agreed, self.place = source, name, match, 0
        self._change, self._due = [], []

    def fork(self) -> Copy:
        """To be followed along what may be taken back."""
        return replace(self, changes=self.changes.fork(), _change=[*self._change], _due=[*self._due])

    def end(self) -> None:
        self.start([], "", 0)

    def ahead(self, limit: int) -> list[int]:
        """What is expected next. Right after a change the guess is that one id was put for one."""
        place = self.place
        ids = self._due[:limit]
        if self.lost:
            place = min(self._left + len(self._change), len(self.source))
        while len(ids) < limit and place < len(self.source):
            if pair := self.changes.at(self.source, place):
                ids.extend(pair[1])
                place += len(pair[0])
            else:
                ids.append(self.source[place])
                place += 1
        return ids[:limit]

    def follow(self, token: int) -> None:
        """One id more was written."""
        if not self.source:
            return
        if self._change:
            self._return(token)
        elif not self._as_expected(token):
            self._leave(token)

    def _as_expected(self, token: int) -> bool:
        if self._due:
            if token != self._due[0]:
                return False
            del self._due[0]
            self.agreed += 1
            return True
        if pair := self.changes.at(self.source, self.place):
            was, now = pair
            if now[:1] == (token,):
                self.changes.remember(was, now)
                self._due = list(now[1:])
                self.place += len(was)
                self.agreed += 1
                return True
            if token == self.source[self.place]:
                self.changes.doubt(was)
        if self.place < len(self.source) and token == self.source[self.place]:
            self.place += 1
            self.agreed += 1
            return True
        return False

    def _leave(self, token: int) -> None:
        self._due = []
        self._left, self._before, self.agreed = self.place, self.agreed, 0
        self._change = []
        self._return(token)

    def _return(self, token: int) -> None:
        """Find the place again: where the longest end of what was written stands in the source's next ids."""
        written = self._change = [*self._change, token]
        if len(written) > LONGEST_CHANGE:
            self.end()
            return
        reach = range(self._left, min(self._left + REACH, len(self.source)))
        best = (0, 0)
        for end in reach:
            length = 0
            while (
                length < len(written)
                and end - length >= self._left
                and self.source[end - length] == written[-1 - length]
            ):
                length += 1
            if length > best[0]:
                best = (length, end + 1)
        length, place = best
        if not length:
            self.agreed, self.place = 0, self._left
            return
        self.place = place
        self.agreed = length + self._before // 2
        if length >= 3 or (length >= 2 and len(written) - length <= 2):
            self._remember(place - length, len(written) - length)
            self._change = []

    def _remember(self, back: int, changed: int) -> None:
        """What stood between leaving and coming back was replaced; where one side is empty, together with
        the id before."""
        was, now = tuple(self.source[self._left : back]), tuple(self._change[:changed])
        if (not was or not now) and self._left:
            before = self.source[self._left - 1]
            was, now = (before, *was), (before, *now)
        self.changes.remember(was, now)
