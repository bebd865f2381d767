"""Lookup: the longest most recent match in document order, and what its index costs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from copilotd.engine.drafters.lookup import GRAMS, LONGEST, Guess, Index, Lookup, Stack
from copilotd.engine.generation import Surroundings


def brute_force(above: list[int], below: list[int], limit: int) -> list[int]:
    """The definition: every place in the document, nearest above first, then nearest below."""
    tail = above[-LONGEST:]

    def length(text: list[int], end: int) -> int:
        n = 0
        while n < len(tail) and end - n >= 0 and text[end - n] == tail[-1 - n]:
            n += 1
        return n

    places = [(length(above, end), 0, end) for end in range(len(above) - 2, -1, -1)]
    places += [(length(below, end), 1, end) for end in range(len(below) - 1)]
    places = [place for place in places if place[0] >= min(GRAMS)]
    if not places:
        return []
    longest = max(n for n, _, _ in places)
    _, part, end = next(place for place in places if place[0] == longest)
    if part:
        return below[end + 1 : end + 1 + limit]
    out = list(above)
    for i in range(limit):
        out.append(out[end + 1 + i])
    return out[len(above) :]


def match(lookup: Lookup, written: list[int], limit: int) -> Guess:
    """The longest match, without what a changed copy would add."""
    found = [guess for guess in lookup.guesses(written, limit) if guess.kind == "match"]
    return found[0] if found else Guess([], 0)


def looked_up(above: Sequence[int], below: Sequence[int] = (), limit: int = 4) -> list[int]:
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=list(above), after=list(below)))
    return match(lookup, [], limit).ids


def test_what_followed_the_last_match() -> None:
    assert looked_up([1, 2, 3, 4, 5, 9, 1, 2], limit=3) == [3, 4, 5]


def test_a_longer_match_beats_a_nearer_one() -> None:
    assert looked_up([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], limit=1) == [3]


def test_among_equals_the_nearest_wins() -> None:
    assert looked_up([1, 2, 3, 0, 1, 2, 4, 0, 0, 1, 2], limit=1) == [4]


def test_the_text_below_is_seen_in_document_order() -> None:
    assert looked_up([5, 1, 2], [0, 1, 2, 6, 7, 8], limit=2) == [6, 7]
    assert looked_up([5, 1, 2], [0, 2, 1, 6, 7, 8], limit=2) == []


def test_the_text_above_wins_a_tie() -> None:
    assert looked_up([1, 2, 3, 1, 2], [1, 2, 4], limit=1) == [3]


def test_a_period_goes_on() -> None:
    assert looked_up([1, 2, 3, 1, 2, 3, 1, 2], limit=7) == [3, 1, 2, 3, 1, 2, 3]
    assert looked_up([4, 4, 4], limit=5) == [4] * 5


def test_the_output_counts_as_text_above() -> None:
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=[1, 2, 3, 4, 9]))
    assert match(lookup, [], 2).ids == []
    assert match(lookup, [1, 2], 2).ids == [3, 4]
    assert match(lookup, [2, 3], 2).ids == [4, 9]
    assert match(lookup, [], 2).ids == []


@pytest.mark.parametrize("seed", range(6))
def test_any_history_equals_the_definition(seed: int) -> None:
    """Typing, deleting, jumping and writing, on an alphabet small enough for matches everywhere."""
    rng = random.Random(seed)
    document = [rng.randrange(3 + seed) for _ in range(60)]
    cursor = 30
    lookup = Lookup()
    for _ in range(150):
        move = rng.random()
        if move < 0.4:
            document.insert(cursor, rng.randrange(3 + seed))
            cursor += 1
        elif move < 0.6 and cursor:
            cursor -= 1
            del document[cursor]
        else:
            cursor = rng.randrange(len(document) + 1)
        above, below = document[:cursor], document[cursor:]
        lookup.begin("d", Surroundings(before=above, after=below))
        for written in ([], [rng.randrange(3)], [rng.randrange(3) for _ in range(9)]):
            found = match(lookup, written, 6).ids
            assert found == brute_force([*above, *written], below, 6)


def test_documents_do_not_see_each_other() -> None:
    lookup = Lookup()
    lookup.begin("a", Surroundings(before=[1, 2, 3, 1, 2]))
    lookup.begin("b", Surroundings(before=[1, 2]))
    assert match(lookup, [], 2).ids == []
    lookup.begin("a", Surroundings(before=[1, 2, 3, 1, 2]))
    assert match(lookup, [], 1).ids == [3]


class Counting(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.work = 0

    def _push(self, ids: list[int]) -> None:
        self.work += len(ids)
        super()._push(ids)

    def _pop(self) -> None:
        self.work += 1
        super()._pop()


def test_the_index_costs_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typing pushes what was typed, a jump carries the ids moved, a step indexes what was written."""
    monkeypatch.setattr("copilotd.engine.drafters.lookup.Stack", Counting)
    index = Index()
    rng = random.Random(0)
    document = [rng.randrange(500) for _ in range(4000)]

    def work() -> int:
        done = index._above.work + index._below.work  # type: ignore[attr-defined]
        index._above.work = index._below.work = 0  # type: ignore[attr-defined]
        return done

    index.become(document[:2000], document[2000:])
    assert work() == 4000
    index.become([*document[:2000], 7], document[2000:])
    assert work() == 1
    index.write(2001, [1, 2, 3])
    index.guess(8)
    index.write(2001, [1, 2, 3, 4, 5])
    index.guess(8)
    assert work() == 5
    index.become([*document[:2000], 7, 1, 2, 3, 4, 5], document[2000:])
    assert work() == 0  # accepted as shown: it is there already
    index.become(document[:1900], document[1900:])
    assert work() == 106 + 100


class Shelf:
    """A library with one document, searched plainly."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.asked: list[list[int]] = []

    def find(self, tail: Sequence[int], limit: int) -> tuple[list[int], int]:
        self.asked.append(list(tail))
        for length in range(len(tail), 1, -1):
            for place in range(length, len(self.ids)):
                if self.ids[place - length : place] == list(tail[-length:]):
                    return self.ids[place : place + limit], length
        return [], 0


def test_the_library_is_believed_where_its_match_is_longer() -> None:
    shelf = Shelf([1, 2, 3, 4, 5, 6])
    looked = Lookup()
    looked.begin("a", Surroundings(before=[3, 4, 9, 9, 2, 3, 4]), shelf)
    guess = match(looked, [], 4)
    assert (guess.ids, guess.match, guess.source) == ([5, 6], 3, "workspace")
    looked.begin("a", Surroundings(before=[2, 3, 4, 9, 9, 2, 3, 4]), shelf)
    guess = match(looked, [], 2)
    assert (guess.ids, guess.match, guess.source) == ([9, 9], 3, "lookup")
    match(looked, [5], 2)
    assert shelf.asked[-1][-4:] == [2, 3, 4, 5]
