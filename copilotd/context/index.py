"""The workspace's tokens and an index over them, in memory shared between the process that writes and the engine that reads.

Layout of the one anonymous mapping, all little-endian int32, for a capacity of C tokens and F files:

    header      [64]        magic, generation, tokens used, files used, C, F
    tokens      [C]         ids of file after file; a replaced file's tokens stay until compaction
    previous    [2, C]      the position before with the same bucket, or -1; one row for each of `GRAMS`
    heads       [2, B]      the newest position of each bucket, or -1 (B: the power of two at or above C / 2)
    files       [F, 8]      start, length, language, alive, roots (a bit set), owner (-1: the disk), nearness

A bucket is a hash of the n ids that end before a position, so a position is where a copied run would go on.
The long grams find the long matches among thousands of places of a common short one. That is 4 + 2 (4 + 2…4) =
16 to 20 bytes a token. There are no locks: the writer links a file's positions before it moves the heads, and
the reader compares ids before it believes a position, so at the worst a lookup proposes what the target then
rejects.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

GRAMS = (8, 3)
"""ids that must match before a position is looked at; longer matches win"""
GRAM = GRAMS[-1]

COLUMNS = 8
START, LENGTH, LANGUAGE, ALIVE, ROOTS, OWNER, NEAR_HIGH, NEAR_LOW = range(COLUMNS)
DISK = -1

MAX_TOKENS = 5_000_000
MAX_FILES = 65_536

_MAGIC = 0x636F7069
_HEADER = 64
_GENERATION, _USED, _FILES, _CAPACITY, _FILE_CAPACITY = 1, 2, 3, 4, 5

Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int32]]"
Wide: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"

_FOLDERS = 16
"""parts of a path that its nearness tells apart"""


def nearness(path: str) -> int:
    """Four bits for each of a path's first sixteen folders: files with more leading bits alike are nearer."""
    parts = path.split("/")[1:-1][:_FOLDERS]
    code = 0
    for part in parts:
        code = code << 4 | zlib.crc32(part.encode(errors="replace")) & 15
    return code << 4 * (_FOLDERS - len(parts))


def _buckets(capacity: int) -> int:
    return 1 << max(4, (capacity // 2 - 1).bit_length())


def _bytes(capacity: int, files: int) -> int:
    return 4 * (_HEADER + capacity + len(GRAMS) * (capacity + _buckets(capacity)) + COLUMNS * files)


class Arrays(Struct):
    """Views of the mapping; see the module's layout."""

    header: Array
    tokens: Array
    previous: Array
    heads: Array
    files: Array


def _views(buffer: mmap.mmap, capacity: int, files: int) -> Arrays:
    whole = np.frombuffer(buffer, dtype=np.int32)
    buckets = _buckets(capacity)
    n = len(GRAMS)
    ends = np.cumsum([_HEADER, capacity, n * capacity, n * buckets, COLUMNS * files])
    header, tokens, previous, heads, table = np.split(whole[: ends[-1]], ends[:-1])
    return Arrays(
        header,
        tokens,
        previous.reshape(n, capacity),
        heads.reshape(n, buckets),
        table.reshape(files, COLUMNS),
    )


def allocate(capacity: int = MAX_TOKENS, files: int = MAX_FILES) -> int:
    """An empty index in anonymous memory: nothing of it is ever on disk. The descriptor is the caller's."""
    descriptor = os.memfd_create("copilotd-index", os.MFD_CLOEXEC)
    size = _bytes(capacity, files)
    os.ftruncate(descriptor, size)
    with mmap.mmap(descriptor, size) as buffer:
        arrays = _views(buffer, capacity, files)
        arrays.header[[0, _CAPACITY, _FILE_CAPACITY]] = [_MAGIC, capacity, files]
        arrays.heads[:] = -1
        del arrays
    return descriptor


def _attach(descriptor: int, protection: int) -> tuple[mmap.mmap, Arrays]:
    buffer = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=protection)
    header = np.frombuffer(buffer, dtype=np.int32, count=_HEADER)
    if header[0] != _MAGIC:
        raise ValueError("the mapping is no index of copilotd's")
    return buffer, _views(buffer, int(header[_CAPACITY]), int(header[_FILE_CAPACITY]))


def hashes(ids: Array, n: int = GRAM) -> Array:
    """For each position n … len(ids), the hash of the n ids before it; int64 [len(ids) - n + 1]."""
    wide = ids.astype(np.uint64)
    count = len(ids) - n + 1
    mixed = np.zeros(max(count, 0), dtype=np.uint64)
    for i in range(n):
        mixed = (mixed ^ wide[i : i + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.astype(np.int64)


class IndexWriter:
    """The one writer of a mapping that `allocate` made. Raises ValueError for any other."""

    def __init__(self, descriptor: int) -> None:
        self._map, self._arrays = _attach(descriptor, mmap.PROT_READ | mmap.PROT_WRITE)
        self._capacity, self._file_capacity = len(self._arrays.tokens), len(self._arrays.files)
        self._live = 0

    @property
    def tokens(self) -> int:
        """Tokens of files that are alive."""
        return self._live

    @property
    def room(self) -> int:
        """Tokens that still fit, the dead ones away."""
        return self._capacity - self._live

    def add(
        self, ids: Sequence[int] | Array, language: int, roots: int = 1, owner: int = DISK, near: int = 0
    ) -> int | None:
        """Put in a file's ids; its number, or None where there is no room for it. `near` is its `nearness`."""
        array = np.asarray(ids, dtype=np.int32)
        if self._live + len(array) > self._capacity:
            return None
        used, count = self._used, self._count
        if used + len(array) > self._capacity or count == self._file_capacity:
            return None
        a = self._arrays
        a.tokens[used : used + len(array)] = array
        a.files[count] = [used, len(array), language, 1, roots, owner, *_halves(near)]
        self._link(used, array)
        a.header[_USED] = used + len(array)
        a.header[_FILES] = count + 1
        self._live += len(array)
        return count

    def remove(self, number: int) -> None:
        """The file's tokens are no longer found."""
        self._live -= int(self._arrays.files[number, LENGTH])
        self._arrays.files[number, ALIVE] = 0

    def show_to(self, number: int, roots: int) -> None:
        """The folders (a bit set) that hold the file."""
        self._arrays.files[number, ROOTS] = roots

    @property
    def crowded(self) -> bool:
        """Whether dead files take so much that `compact` pays."""
        dead = self._used - self._live
        return dead > self._capacity // 4 or self._count > self._file_capacity * 3 // 4

    def compact(self) -> dict[int, int]:
        """Close the gaps that removed files left; old file numbers to new ones."""
        a = self._arrays
        table = a.files[: self._count].copy()
        kept = [number for number in range(len(table)) if table[number, ALIVE]]
        bodies = [a.tokens[s : s + n].copy() for s, n in table[kept, :LANGUAGE]]
        a.header[_FILES] = a.header[_USED] = 0
        a.heads[:] = -1
        self._live = 0
        moved: dict[int, int] = {}
        for number, body in zip(kept, bodies, strict=True):
            new = self.add(body, *(int(table[number, column]) for column in (LANGUAGE, ROOTS, OWNER)))
            assert new is not None  # what fitted before fits without the gaps
            a.files[new, NEAR_HIGH:] = table[number, NEAR_HIGH:]
            moved[number] = new
        a.header[_GENERATION] += 1
        return moved

    def close(self) -> None:
        del self._arrays
        self._map.close()

    @property
    def _used(self) -> int:
        return int(self._arrays.header[_USED])

    @property
    def _count(self) -> int:
        return int(self._arrays.header[_FILES])

    def _link(self, start: int, ids: Array) -> None:
        for row, n in enumerate(GRAMS):
            self._chain(row, n, start, ids)

    def _chain(self, row: int, n: int, start: int, ids: Array) -> None:
        """Chain the positions of one file: previous within it first, then onto the older heads."""
        previous, heads = self._arrays.previous[row], self._arrays.heads[row]
        buckets = hashes(ids, n) & (len(heads) - 1)
        if not len(buckets):
            return
        # The last hash's position is one past the file's end, where nothing stands to be proposed.
        buckets = buckets[:-1]
        positions = np.arange(start + n, start + len(ids), dtype=np.int32)
        order = np.argsort(buckets, kind="stable")
        grouped, placed = buckets[order], positions[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = grouped[1:] != grouped[:-1]
        before = np.empty(len(order), dtype=np.int32)
        before[1:] = placed[:-1]
        before[first] = heads[grouped[first]]
        previous[placed] = before
        last = np.ones(len(order), dtype=bool)
        last[:-1] = first[1:]
        heads[grouped[last]] = placed[last]


def _halves(code: int) -> tuple[int, int]:
    """64 bits as two signed numbers of 32."""
    high, low = code >> 32, code & 0xFFFFFFFF
    return high - (high >> 31 << 32), low - (low >> 31 << 32)


class View(Struct, frozen=True):
    """What one session may see."""

    roots: int = -1
    owner: int = DISK
    hidden: frozenset[int] = frozenset()
    buffers: dict[str, int] = {}
    """its own, by path"""

    def around(self, path: str) -> View:
        """For lookup in one document, whose own text is looked up as it is now."""
        return replace(self, hidden=self.hidden | {self.buffers[path]}) if path in self.buffers else self

    def shows(self, number: int, roots: int, owner: int) -> bool:
        if number in self.hidden:
            return False
        return owner == self.owner if owner != DISK else bool(roots & self.roots)


class Match(Struct, frozen=True):
    ids: list[int]
    """what followed there"""
    length: int
    """ids before it that agree"""
    file: int


class IndexReader:
    """Reads a mapping that another process writes. Every lookup is bounded: `CHAIN` candidates, `LONGEST` ids each."""

    CHAIN = 24
    LONGEST = 32

    def __init__(self, descriptor: int) -> None:
        self._map, self._arrays = _attach(descriptor, mmap.PROT_READ)

    def find(self, tail: Sequence[int], limit: int, view: View, language: int, near: int = 0) -> Match | None:
        """The best place where the ids of `tail` stood before, and up to `limit` ids that followed.

        Longer matches win, then the same language, then the nearer file, then the newest.
        """
        wanted = np.asarray(tail[-self.LONGEST :], dtype=np.int32)
        for row, n in enumerate(GRAMS):
            if len(wanted) >= n and (found := self._best(row, n, wanted, view, language, near)):
                place, end, agreed, number = found
                return Match(self._arrays.tokens[place : min(end, place + limit)].tolist(), agreed, number)
        return None

    def _best(
        self, row: int, n: int, wanted: Array, view: View, language: int, near: int
    ) -> tuple[int, int, int, int] | None:
        """(position, end of its file, ids that agree, the file) among the newest with the same last n ids."""
        a = self._arrays
        used, count = int(a.header[_USED]), int(a.header[_FILES])
        positions = self._chained(row, n, wanted, used)
        if not positions or not count:
            return None
        places = np.array(positions)
        numbers = np.searchsorted(a.files[:count, START], places, side="right") - 1
        files = a.files[numbers].astype(np.int64)
        shown = [
            alive == 1 and start <= place < start + length and view.shows(number, roots, owner)
            for place, number, (start, length, _, alive, roots, owner, *_) in zip(
                positions, numbers.tolist(), files.tolist(), strict=True
            )
        ]
        if not any(shown):
            return None
        back = places[:, None] - 1 - np.arange(len(wanted))
        differs = a.tokens[np.maximum(back, 0)] != wanted[::-1]
        differs |= back < files[:, START, None]
        agreed = np.where(differs.any(1), differs.argmax(1), len(wanted))
        rank = agreed * 64 + (files[:, LANGUAGE] == language) * 32 + _shared(files, near)
        rank[np.logical_not(shown)] = -1
        best = int(rank.argmax())
        if rank[best] < 0 or agreed[best] < n:
            return None
        end = int(files[best, START] + files[best, LENGTH])
        return positions[best], end, int(agreed[best]), int(numbers[best])

    def _chained(self, row: int, n: int, wanted: Array, used: int) -> list[int]:
        """The newest positions in the bucket of the last n ids."""
        previous, heads = self._arrays.previous[row], self._arrays.heads[row]
        position = int(heads[int(hashes(wanted[-n:], n)[0]) & (len(heads) - 1)])
        found: list[int] = []
        while len(found) < self.CHAIN and 0 <= position < used:
            found.append(position)
            position = int(previous[position])
        return found

    def close(self) -> None:
        del self._arrays
        self._map.close()


def _shared(files: Wide, near: int) -> Wide:
    """Leading folders that files have in common with a place, 0 … 16."""
    high, low = _halves(near)
    apart = ((files[:, NEAR_HIGH] ^ high) & 0xFFFFFFFF) * 2.0**32 + ((files[:, NEAR_LOW] ^ low) & 0xFFFFFFFF)
    return _FOLDERS - (np.frexp(apart)[1].astype(np.int64) + 3) // 4
