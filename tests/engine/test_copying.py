"""A copy followed past what is changed in it, on small ids; names stand for runs of them."""

from __future__ import annotations

from copilotd.engine.drafters.copying import LONGEST_CHANGE, PAIR, PAIRS, Changes, Copy
from copilotd.engine.drafters.lookup import Lookup
from copilotd.engine.generation import Surroundings
from tests.engine.test_lookup import Shelf


def copying(source: list[int], match: int = 8) -> Copy:
    copy = Copy(Changes())
    copy.start(source, "workspace", match)
    return copy


def follow(copy: Copy, *ids: int) -> None:
    for token in ids:
        copy.follow(token)


def test_what_is_left_of_the_source_is_expected() -> None:
    copy = copying([1, 2, 3, 4, 5])
    follow(copy, 1, 2)
    assert copy.ahead(2) == [3, 4]
    assert copy.ahead(9) == [3, 4, 5]
    assert copy.agreed == 10


def test_one_id_for_one_is_the_first_guess() -> None:
    copy = copying([1, 2, 3, 4, 5])
    follow(copy, 1, 99)
    assert copy.lost
    assert copy.ahead(3) == [3, 4, 5]


def test_longer_and_shorter_changes_are_passed() -> None:
    for written in ([1, 70, 71, 72, 4, 5], [1, 4, 5], [1, 2, 3, 80, 4, 5]):
        copy = copying([1, 2, 3, 4, 5, 6, 7])
        follow(copy, *written)
        assert copy.ahead(2) == [6, 7], written


def test_what_was_put_for_what_is_put_again() -> None:
    copy = copying([1, 20, 21, 2, 3, 4, 20, 21, 5, 20, 22])
    follow(copy, 1, 30, 31, 32, 2, 3, 4)
    assert copy.ahead(5) == [30, 31, 32, 5, 20]
    follow(copy, 30, 31, 32)
    assert copy.ahead(3) == [5, 20, 22]


def test_a_change_of_mind_is_noticed() -> None:
    copy = copying([1, 20, 2, 3, 4, 20, 5, 6, 20, 7])
    follow(copy, 1, 30, 2, 3, 4)
    assert copy.ahead(2) == [30, 5]
    follow(copy, 20, 5, 6)
    assert copy.ahead(2) == [20, 7]


def test_an_insertion_is_remembered_with_the_id_before_it() -> None:
    copy = copying([9, 1, 2, 3, 4, 1, 2])
    follow(copy, 9, 1, 50, 2, 3, 4)
    assert copy.ahead(3) == [1, 50, 2]


def test_changes_outlive_the_copy_they_were_made_in() -> None:
    first = copying([1, 20, 2, 3, 4])
    follow(first, 1, 30, 2, 3, 4)
    second = Copy(first.changes)
    second.start([7, 20, 8], "lookup", 8)
    assert second.ahead(3) == [7, 30, 8]


def test_a_fork_leaves_no_trace() -> None:
    copy = copying([1, 20, 2, 3, 4, 20])
    follow(copy, 1)
    fork = copy.fork()
    follow(fork, 30, 2, 3, 4)
    assert fork.ahead(1) == [30]
    assert copy.ahead(9) == [20, 2, 3, 4, 20]


def test_something_else_ends_the_copy() -> None:
    copy = copying([1, 2, 3, 4])
    follow(copy, *range(100, 101 + LONGEST_CHANGE))
    assert copy.ahead(4) == []
    follow(copy, 1)
    assert copy.ahead(4) == []


def test_changes_are_few_and_short() -> None:
    changes = Changes()
    changes.remember(tuple(range(PAIR + 1)), (1,))
    changes.remember((), (1,))
    changes.remember((1,), (1,))
    assert changes.at([0, 1, 2, 3, 4, 5, 6, 7], 0) is None
    for number in range(PAIRS + 3):
        changes.remember((number,), (1000 + number,))
    assert changes.at([2], 0) is None
    assert changes.at([3], 0) == ((3,), (1003,))


def test_lookup_goes_on_after_a_name_was_changed_in_a_copy_from_elsewhere() -> None:
    shelf = Shelf([*range(1, 12), 50, *range(12, 20), 50, 60, 61, 62])
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=list(range(1, 11))), shelf)
    assert [guess.ids for guess in lookup.guesses([], 3)] == [[11, 50, 12]]
    kinds = {guess.kind: guess.ids for guess in lookup.guesses([11, 70, 71, 12], 3)}
    assert kinds["copy"] == [13, 14, 15]
    written = [11, 70, 71, *range(12, 20)]
    assert [70, 71, 60, 61] in [guess.ids for guess in lookup.guesses(written, 4)]


def test_a_request_in_the_middle_of_a_change_finds_its_copy() -> None:
    shelf = Shelf([*range(1, 12), 50, 51, 12, 13, 14])
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=[*range(1, 12), 70, 71, 12]), shelf)
    assert [13, 14] in [guess.ids for guess in lookup.guesses([], 2)]


def test_what_a_model_drew_is_not_taken_for_written() -> None:
    shelf = Shelf([*range(1, 12), 50, 12, 13, 14, 15])
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=list(range(1, 12))), shelf)
    lookup.guesses([], 2, drawn=[70, 12])
    assert [50, 12] in [guess.ids for guess in lookup.guesses([], 2)]


def test_a_copy_goes_on_in_the_next_request() -> None:
    """The change was too near the end of the first to be sure of."""
    shelf = Shelf([*range(1, 12), 50, 12, 13, 14, 50, 15])
    lookup = Lookup()
    lookup.begin("d", Surroundings(before=list(range(1, 12))), shelf)
    lookup.guesses([], 2)
    lookup.guesses([70, 12], 2)
    lookup.begin("d", Surroundings(before=[*range(1, 12), 70, 12, 13, 14]), shelf)
    assert [70, 15] in [guess.ids for guess in lookup.guesses([], 2)]
    lookup.begin("d", Surroundings(before=[90, 91, 92]), shelf)
    assert lookup.guesses([], 2) == []
