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

from msgspec import Struct

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


class Guess(Struct):
    ids: list[int]
    match: int
    """length of the match it rests on"""
    source: str = NAME


class Index:
    """One document around its cursor."""

    def __init__(self) -> None:
        self._above = Stack()
        self._below = Stack()
        """the text after the cursor, the document's last id at the bottom"""

    def become(self, above: list[int], below: list[int]) -> None:
        self._above.become(above)
        self._below.become(below[::-1])

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
            length = 0
            while length < min(LONGEST, place + 1) and ids[place - length] == ids[tip - length]:
                length += 1
            if place < tip and length >= n and length > found[0]:
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
            length = 0
            while length < len(tail) and last + length < len(ids) and ids[last + length] == tail[-1 - length]:
                length += 1
            if last > 0 and length >= n and length > found[0]:
                found = (length, last)
        return found

    def _after(self, place: int, limit: int) -> list[int]:
        """What follows a match above; past the end it goes on with itself, so a period is continued."""
        ids = self._above.ids
        period = len(ids) - 1 - place
        return [ids[place + 1 + i % period] for i in range(limit)]


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
        self._tail = list(surroundings.before[-LONGEST:])
        self._library = library

    def guess(self, written: Sequence[int], limit: int) -> Guess:
        """What may follow the text above and `written`: the document's word, unless the library has a longer
        match."""
        self._index.write(self._start, written)
        here = self._index.guess(limit)
        if self._library is None or here.match >= LONGEST:
            return here
        ids, match = self._library.find([*self._tail, *written][-LONGEST:], limit)
        return Guess(ids, match, WORKSPACE) if match > here.match else here

    def forget(self, document: Hashable) -> None:
        self._documents.pop(document, None)
