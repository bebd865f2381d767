"""The index against a plain search of the same files."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilotd.context.index import GRAM, IndexReader, IndexWriter, View, allocate, nearness


@pytest.fixture
def pair() -> Iterator[tuple[IndexWriter, IndexReader]]:
    descriptor = allocate(capacity=20_000, files=64)
    writer, reader = IndexWriter(descriptor), IndexReader(descriptor)
    yield writer, reader
    reader.close()
    writer.close()
    os.close(descriptor)


def longest(files: dict[int, list[int]], tail: list[int]) -> int:
    """The longest run of ids before some position of a file that agrees with the end of `tail`."""
    best = 0
    for ids in files.values():
        for place in range(GRAM, len(ids)):
            agreed = 0
            while agreed < min(place, len(tail), 32) and ids[place - 1 - agreed] == tail[-1 - agreed]:
                agreed += 1
            best = max(best, agreed)
    return best


def test_finds_the_longest_match_that_a_plain_search_finds(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    draw = random.Random(1)
    files = {}
    for _ in range(12):
        ids = [draw.randrange(40) for _ in range(300)]
        files[writer.add(ids, 0)] = ids
    hits = 0
    for _ in range(200):
        ids = draw.choice(list(files.values()))
        place = draw.randrange(12, 290)
        tail = [draw.randrange(40) for _ in range(5)] + ids[place - draw.randrange(GRAM, 12) : place]
        match = reader.find(tail, 8, View(), 0)
        assert match is not None
        assert match.length == longest(files, tail)
        source = files[match.file]
        assert any(
            source[p : p + len(match.ids)] == match.ids
            and source[p - match.length : p] == tail[-match.length :]
            for p in range(GRAM, len(source))
        )
        hits += match.ids[: 290 - place] == ids[place : place + 8]
    assert hits > 100


def test_nothing_to_find(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    writer.add([1, 2, 3, 4, 5], 0)
    assert reader.find([9, 9, 9], 4, View(), 0) is None
    assert reader.find([1, 2], 4, View(), 0) is None
    assert reader.find([3, 4, 5], 4, View(), 0) is None  # nothing follows it
    assert writer.add([], 0) is not None
    assert writer.add([1, 2], 0) is not None


def test_a_removed_file_is_found_no_more_and_a_newer_one_wins(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    old = writer.add([1, 2, 3, 10, 11], 0)
    new = writer.add([1, 2, 3, 20, 21], 0)
    assert old is not None
    assert new is not None
    match = reader.find([1, 2, 3], 8, View(), 0)
    assert match is not None
    assert (match.ids, match.file) == ([20, 21], new)
    writer.remove(new)
    match = reader.find([1, 2, 3], 8, View(), 0)
    assert match is not None
    assert (match.ids, match.file) == ([10, 11], old)


def test_longer_beats_same_language_beats_newer(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    writer.add([7, 1, 2, 3, 10], 1)
    writer.add([8, 1, 2, 3, 20], 0)
    writer.add([9, 1, 2, 3, 30], 1)
    same = reader.find([1, 2, 3], 1, View(), 0)
    longer = reader.find([7, 1, 2, 3], 1, View(), 0)
    assert same is not None
    assert longer is not None
    assert same.ids == [20]
    assert longer.ids == [10]


def test_the_nearer_file_beats_the_newer_one(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    for token, path in ((10, "/w/a/b/one.py"), (20, "/w/a/x/two.py"), (30, "/w/z/three.py")):
        writer.add([1, 2, 3, token], 0, near=nearness(path))

    def found(path: str) -> list[int]:
        match = reader.find([1, 2, 3], 1, View(), 0, nearness(path))
        return [] if match is None else match.ids

    assert found("/w/a/b/four.py") == [10]
    assert found("/w/a/x/four.py") == [20]
    assert found("/w/z/y/four.py") == [30]
    assert found("/elsewhere/four.py") in ([10], [20], [30])
    writer.compact()
    assert found("/w/a/b/four.py") == [10]


def test_a_long_match_is_found_behind_any_number_of_short_ones(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    writer.add([4, 5, 6, 7, 8, 1, 2, 3, 99], 0)
    for number in range(2 * IndexReader.CHAIN):
        writer.add([100 + number, 1, 2, 3, 50], 0)
    match = reader.find([4, 5, 6, 7, 8, 1, 2, 3], 1, View(), 0)
    assert match is not None
    assert match.ids == [99]


def test_a_session_sees_its_own_folders_and_buffers(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair

    def sees(view: View) -> list[int]:
        match = reader.find([1, 2, 3], 1, view, 0)
        return [] if match is None else match.ids

    on_disk = writer.add([1, 2, 3, 10], 0, roots=0b01)
    writer.add([1, 2, 3, 20], 0, roots=0b10)
    writer.add([1, 2, 3, 30], 0, owner=7)
    assert on_disk is not None
    assert sees(View(roots=0b01)) == [10]
    assert sees(View(roots=0b10)) == [20]
    assert sees(View(roots=0b01, owner=7)) == [30]
    assert sees(View(roots=0b01, owner=8)) == [10]
    assert sees(View(roots=0b01, hidden=frozenset([on_disk]))) == []
    assert sees(View(roots=0b01, owner=7, buffers={"/a.py": 2}).around("/b.py")) == [30]
    assert sees(View(roots=0b01, owner=7, buffers={"/a.py": 2}).around("/a.py")) == [10]
    writer.show_to(on_disk, 0b10)
    assert sees(View(roots=0b01)) == []


def test_compaction_makes_room_and_keeps_what_is_alive(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, reader = pair
    draw = random.Random(2)
    keep = writer.add([1, 2, 3, 10], 0)
    assert keep is not None
    last = None
    while not writer.crowded:
        if last is not None:
            writer.remove(last)
        last = writer.add([draw.randrange(4, 1000) for _ in range(1000)], 0)
        assert last is not None
    moved = writer.compact()
    assert set(moved) == {keep, last}
    assert writer.tokens == 1004
    match = reader.find([1, 2, 3], 1, View(), 0)
    assert match is not None
    assert (match.ids, match.file) == ([10], moved[keep])


def test_a_full_index_says_so(pair: tuple[IndexWriter, IndexReader]) -> None:
    writer, _ = pair
    assert writer.add(list(range(20_000)), 0) == 0
    assert writer.add([1], 0) is None
    assert writer.tokens == 20_000


def test_bytes_per_token() -> None:
    descriptor = allocate(capacity=5_000_000, files=65_536)
    assert os.fstat(descriptor).st_size / 5_000_000 <= 24
    os.close(descriptor)


def test_another_mapping_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_bytes(bytes(4096))
    with file.open("r+b") as stream, pytest.raises(ValueError, match="no index"):
        IndexReader(stream.fileno())
