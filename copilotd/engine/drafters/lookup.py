"""Prompt lookup: what followed the longest most recent match of the last ids, in document order.

The document is two stacks that meet at the cursor: the ids above it, and the ids after it turned round, so
that its index counts from the document's end. Typing pushes on the first, moving the cursor carries ids from
one to the other, and nothing else is indexed again. The places of equal n-grams are chained from the latest
to the earliest, as zlib does; what was pushed last can be popped.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from copilotd.engine.drafters.copying import AHEAD, Changes, Copy
from copilotd.engine.generation import Library, Surroundings
from copilotd.engine.prefix import common_prefix

NAME = "lookup"
WORKSPACE = "workspace"
"""what the request's library proposes, counted apart"""

GRAMS = (8, 4, 2)
"""Lengths of the n-grams indexed. The shortest is the shortest match."""
LONGEST = 32
"""A match is not measured further."""
CANDIDATES = 64
"""Places looked at, the most recent first."""
DOCUMENTS = 4
"""Documents whose index is kept, the least recently used out."""


class Stack:
    """Ids with their n-grams indexed; work is by the ids pushed and popped."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._latest: dict[int, dict[int, int]] = {n: {} for n in GRAMS}
        """by n: hash of a gram to the place of its last id"""
        self._earlier = {n: array("i") for n in GRAMS}
        """by n and place: the place before it with an equal gram, or -1"""

    def become(self, ids: list[int], start: int = 0) -> None:
        """Keep the first `start` ids, let `ids` follow: pop down to what agrees and push the rest."""
        kept = start + common_prefix(self.ids[start:], ids)
        while len(self.ids) > kept:
            self._pop()
        self._push(ids[kept - start :])

    def _push(self, ids: list[int]) -> None:
        end = len(self.ids)
        self.ids += ids
        for n, latest in self._latest.items():
            first = max(end, n - 1)  # where the first gram that is whole ends
            earlier = self._earlier[n]
            earlier.extend([-1] * min(first - end, len(ids)))
            tail = self.ids[first - n + 1 :]
            for place, gram in enumerate(zip(*(tail[i:] for i in range(n)), strict=False), first):
                key = hash(gram)
                earlier.append(latest.get(key, -1))
                latest[key] = place

    def _pop(self) -> None:
        for n, latest in self._latest.items():
            earlier = self._earlier[n].pop()
            if len(self.ids) < n:
                continue
            key = hash(tuple(self.ids[-n:]))
            if earlier < 0:
                del latest[key]
            else:
                latest[key] = earlier
        self.ids.pop()

    def places(self, gram: Sequence[int]) -> Iterator[int]:
        """Where such a gram ends, the latest first (a hash may lie: the caller compares)."""
        n = len(gram)
        place = self._latest[n].get(hash(tuple(gram)), -1)
        while place >= 0:
            yield place
            place = self._earlier[n][place]


FIRST_CUT = 8
"""ids at the cursor that may be a change already"""
CERTAIN = 6
"""ids that must match before such a change"""


class Guess(Struct):
    ids: list[int]
    match: int
    """length of the match it rests on"""
    source: str = NAME
    kind: Literal["match", "copy", "change"] = "match"
    """ids in a row that agree; a copy past a change, or in the middle of one"""


RETOKENISED = 3
"""ids at a request's end that may be others in the next one, whose cut is elsewhere"""
TYPED = 64
"""ids between two requests that a copy is followed along"""


class Index:
    """One document around its cursor, and the copy that is in progress in it."""

    def __init__(self) -> None:
        self._above = Stack()
        self._below = Stack()
        """the text after the cursor, the document's last id at the bottom"""
        self.copy = Copy(Changes())
        self.followed = 0
        """ids above that the copy has been followed along"""

    def become(self, above: list[int], below: list[int]) -> None:
        stays = common_prefix(self._above.ids[: self.followed], above)
        self._above.become(above)
        self._below.become(below[::-1])
        if stays < self.followed - RETOKENISED or len(above) - stays > TYPED:
            self.copy = Copy(self.copy.changes)  # somewhere else
        else:
            self._follow(above[min(self.followed, len(above)) :])
        self.followed = len(above)

    def follow(self, start: int, written: Sequence[int]) -> None:
        """So much has been written for good after the first `start` ids above."""
        self._follow(written[self.followed - start :])
        self.followed = max(self.followed, start + len(written))

    def _follow(self, ids: Sequence[int]) -> None:
        for token in ids:
            self.copy.follow(token)

    def write(self, start: int, ids: Sequence[int]) -> None:
        """Output and drafts, `ids`, stand after the first `start` ids above."""
        self._above.become(list(ids), start)

    def guess(self, limit: int) -> Guess:
        """At most `limit` ids that followed the longest match; among equals the nearest above, then below."""
        for n in GRAMS:
            above, below = self._longest_above(n), self._longest_below(n)
            if above[0] and above[0] >= below[0]:
                return Guess(self._after(above[1], limit), above[0])
            if below[0]:
                end = below[1] - 1
                return Guess(self._below.ids[max(0, end - limit + 1) : end + 1][::-1], below[0])
        return Guess([], 0)

    def _longest_above(self, n: int) -> tuple[int, int]:
        """(length, place of its last id) of the longest match that has n ids or more; (0, 0) for none."""
        ids = self._above.ids
        tip = len(ids) - 1
        found = (0, 0)
        if len(ids) <= n:
            return found
        for tried, place in enumerate(self._above.places(ids[-n:])):
            if tried > CANDIDATES:
                break
            length, best, longest = 0, found[0], min(LONGEST, place + 1)
            if place == tip or best >= longest or ids[place - best] != ids[tip - best]:
                continue  # no longer than the one found
            while length < longest and ids[place - length] == ids[tip - length]:
                length += 1
            if length >= n and length > best:
                found = (length, place)
        return found

    def _longest_below(self, n: int) -> tuple[int, int]:
        """(length, place of the last id) likewise, in the turned text: the match runs upwards from there."""
        ids, tail = self._below.ids, self._above.ids[-LONGEST:]
        found = (0, 0)
        if len(tail) < n:
            return found
        for tried, place in enumerate(self._below.places(tail[: -n - 1 : -1])):
            if tried > CANDIDATES:
                break
            last = place - n + 1
            length, best, longest = 0, found[0], min(len(tail), len(ids) - last)
            if last == 0 or best >= longest or ids[last + best] != tail[-1 - best]:
                continue
            while length < longest and ids[last + length] == tail[-1 - length]:
                length += 1
            if length >= n and length > best:
                found = (length, last)
        return found

    def _after(self, place: int, limit: int) -> list[int]:
        """What follows a match above; past the end it goes on with itself, so a period is continued."""
        ids = self._above.ids[place + 1 : place + 1 + limit]
        if len(ids) < limit:
            ids *= -(-limit // len(ids))
        return ids[:limit]


class Lookup:
    """The indices of the documents last worked on."""

    def __init__(self) -> None:
        self._documents: OrderedDict[Hashable, Index] = OrderedDict()
        self._index = Index()
        self._start = 0
        self._tail: list[int] = []
        self._library: Library | None = None

    def begin(self, document: Hashable, surroundings: Surroundings, library: Library | None = None) -> None:
        self._index = self._documents.setdefault(document, Index())
        self._documents.move_to_end(document)
        if len(self._documents) > DOCUMENTS:
            self._documents.popitem(last=False)
        self._index.become(list(surroundings.before), list(surroundings.after))
        self._start = len(surroundings.before)
        self._tail = list(surroundings.before[-LONGEST - FIRST_CUT :])
        self._library = library
        if not self._index.copy.source:
            self._begin_within_a_change(self._index.copy)

    def guesses(self, written: Sequence[int], limit: int, drawn: Sequence[int] = ()) -> list[Guess]:
        """What may follow the text above, `written` and `drawn`, where anything may; `drawn` may be taken back.

        The document's word and the library's, the longer match first; and how a copy goes on that was changed
        on the way, where that is something else.
        """
        self._index.follow(self._start, written)
        copy = self._index.copy
        if drawn:
            copy = copy.fork()
            for token in drawn:
                copy.follow(token)
        text = [*written, *drawn]
        self._index.write(self._start, text)
        matches = self._matches([*self._tail, *text], max(limit, AHEAD))
        exact = matches[0] if matches else Guess([], 0)
        if exact.match > copy.agreed and not (copy.lost and exact.match < CERTAIN):
            copy.start(exact.ids, exact.source, exact.match)
        found: list[Guess] = []
        for one in matches:
            if all(other.ids != one.ids[:limit] for other in found):
                found.append(replace(one, ids=one.ids[:limit]))
        ids = copy.ahead(limit)
        if ids and all(other.ids != ids for other in found):
            kind: Literal["copy", "change"] = "change" if copy.lost else "copy"
            found.append(Guess(ids, max(2, copy.agreed), copy.name, kind))
        return found

    def forget(self, document: Hashable) -> None:
        self._documents.pop(document, None)

    def _matches(self, text: list[int], limit: int) -> list[Guess]:
        """The longer one first; the document's where they are equal."""
        here = self._index.guess(limit)
        if self._library is None or here.match >= LONGEST:
            return [here] if here.ids else []
        ids, match = self._library.find(text[-LONGEST:], limit)
        both = [guess for guess in (here, Guess(ids, match, WORKSPACE)) if guess.ids]
        return sorted(both, key=lambda guess: -guess.match)

    def _begin_within_a_change(self, copy: Copy) -> None:
        """Where nothing matches at the cursor, but something did a few ids before it: a copy being changed."""
        matches = self._matches(self._tail, 1)
        if self._library is None or (matches and matches[0].match >= CERTAIN):
            return
        best: tuple[int, int, list[int]] = (0, 0, [])
        for cut in range(1, min(FIRST_CUT, len(self._tail))):
            ids, match = self._library.find(self._tail[:-cut][-LONGEST:], AHEAD)
            if match >= CERTAIN and match > best[0] + 2:
                best = (match, cut, ids)
        match, cut, ids = best
        if match:
            copy.start(ids, WORKSPACE, match)
            for token in self._tail[-cut:]:
                copy.follow(token)
