"""Which cache a request works on."""

from __future__ import annotations

from copilotd.engine.slots import Slots, document
from tests.support.toy_runner import ToyRunner, hashed

RUNNER = ToyRunner(hashed(50, 1), 50)
CAPACITY = 16
SLOT_BYTES = RUNNER.cache_bytes(CAPACITY)


def slots(number: int) -> Slots:
    return Slots(RUNNER, CAPACITY, number * SLOT_BYTES)


def test_a_key_keeps_its_cache() -> None:
    subject = slots(4)
    cache = subject.acquire(("a", "main"), [1])
    RUNNER.step(cache, [1, 2, 3], rows=0)
    assert subject.acquire(("b", "main"), [1]) is not cache
    assert subject.acquire(("a", "main"), [9]) is cache
    assert subject.peek(("a", "main")) is cache
    assert subject.peek(("a", "ahead")) is None


def test_a_third_role_takes_the_slot_that_shares_most() -> None:
    subject = slots(8)
    for role, ids in [("one", [1, 2, 3]), ("two", [1, 2, 9])]:
        RUNNER.step(subject.acquire(("a", role), ids), ids, rows=0)
    taken = subject.acquire(("a", "three"), [1, 2, 9, 9])
    assert taken.ids == [1, 2, 9]
    assert subject.peek(("a", "two")) is None
    assert subject.peek(("a", "one")) is not None
    assert subject.bytes == 2 * SLOT_BYTES


def test_the_least_recently_used_makes_room() -> None:
    subject = slots(2)
    subject.acquire("a", [])
    subject.acquire("b", [])
    subject.acquire("a", [])
    subject.acquire("c", [])
    assert subject.peek("b") is None
    assert subject.peek("a") is not None
    assert subject.bytes == 2 * SLOT_BYTES


def test_one_slot_is_granted_whatever_the_budget() -> None:
    subject = slots(0)
    assert subject.acquire("a", []).capacity == CAPACITY
    subject.acquire("b", [])
    assert subject.bytes == SLOT_BYTES


def test_shrinking_halves_and_ends_at_one() -> None:
    subject = slots(5)
    for key in "abcde":
        subject.acquire(key, [])
    assert subject.shrink()
    assert subject.bytes == 2 * SLOT_BYTES
    assert subject.peek("e") is not None
    assert subject.shrink()
    assert subject.bytes == SLOT_BYTES
    assert not subject.shrink()


def test_a_dropped_slot_is_made_anew() -> None:
    subject = slots(2)
    cache = subject.acquire("a", [])
    subject.drop("a")
    subject.drop("a")
    assert subject.acquire("a", []) is not cache


def test_the_document_of_a_key() -> None:
    assert document(("file:///a", "main")) == "file:///a"
    assert document("x") == "x"
    assert document(None) is None


def test_a_new_slot_takes_over_the_rows_that_its_sibling_has() -> None:
    subject = Slots(RUNNER, 256, 8 * RUNNER.cache_bytes(256))
    ids = list(range(1, 49)) * 3
    for start in range(0, 96, RUNNER.chunk):
        RUNNER.step(subject.acquire(("a", 0), ids), ids[start : start + RUNNER.chunk], rows=0)
    other = subject.acquire(("a", 1), [*ids[:80], 49, 49])
    assert other.ids == ids[:80]
    assert subject.acquire(("a", 0), ids).ids == ids[:96]
    stranger = subject.acquire(("b", 0), ids)
    assert stranger.ids == []


def test_a_closed_document_leaves_no_rows() -> None:
    subject = slots(4)
    RUNNER.step(subject.acquire(("a", 0), [1]), [1, 2], rows=0)
    kept = subject.acquire(("b", 0), [1])
    subject.forget("a")
    assert subject.peek(("a", 0)) is None
    assert subject.peek(("b", 0)) is kept
