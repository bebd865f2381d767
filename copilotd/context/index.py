"""The workspace's tokens and an index over them, in memory shared between the process that writes and the engine that reads.

Layout of the one anonymous mapping, all little-endian int32, for a capacity of C tokens and F files:

    header      [64]        magic, generation, tokens used, files used, C, F
    tokens      [C]         ids of file after file; a replaced file's tokens stay until compaction
    previous    [C]         the position before with the same bucket, or -1
    heads       [B]         the newest position of each bucket, or -1 (B: the power of two at or above C / 2)
    files       [F, 6]      start, length, language, alive, roots (a bit set), owner (-1: the disk)

A bucket is a hash of the `GRAM` ids that end before a position, so a position is where a copied run would go
on. That is 4 + 4 + 2…4 = 10 to 12 bytes a token. There are no locks: the writer links a file's positions
before it moves the heads, and the reader compares ids before it believes a position, so at the worst a
lookup proposes what the target then rejects.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

GRAM = 3
"""ids that must match before a position is looked at; longer matches win"""

COLUMNS = 6
START, LENGTH, LANGUAGE, ALIVE, ROOTS, OWNER = range(COLUMNS)
DISK = -1

MAX_TOKENS = 5_000_000
MAX_FILES = 65_536

_MAGIC = 0x636F7069
_HEADER = 64
_GENERATION, _USED, _FILES, _CAPACITY, _FILE_CAPACITY = 1, 2, 3, 4, 5

Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int32]]"


def _buckets(capacity: int) -> int:
    return 1 << max(4, (capacity // 2 - 1).bit_length())


def _bytes(capacity: int, files: int) -> int:
    return 4 * (_HEADER + 2 * capacity + _buckets(capacity) + COLUMNS * files)


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
    ends = np.cumsum([_HEADER, capacity, capacity, buckets, COLUMNS * files])
    header, tokens, previous, heads, table = np.split(whole[: ends[-1]], ends[:-1])
    return Arrays(header, tokens, previous, heads, table.reshape(files, COLUMNS))


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


def hashes(ids: Array) -> Array:
    """For each position GRAM … len(ids), the hash of the GRAM ids before it; int64 [len(ids) - GRAM + 1]."""
    wide = ids.astype(np.uint64)
    count = len(ids) - GRAM + 1
    mixed = np.zeros(max(count, 0), dtype=np.uint64)
    for i in range(GRAM):
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

    def add(self, ids: Sequence[int] | Array, language: int, roots: int = 1, owner: int = DISK) -> int | None:
        """Put in a file's ids; its number, or None where there is no room for it."""
        array = np.asarray(ids, dtype=np.int32)
        if self._live + len(array) > self._capacity:
            return None
        used, count = self._used, self._count
        if used + len(array) > self._capacity or count == self._file_capacity:
            return None
        a = self._arrays
        a.tokens[used : used + len(array)] = array
        a.files[count] = [used, len(array), language, 1, roots, owner]
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
        """Chain the positions of one file: previous within it first, then onto the older heads."""
        a = self._arrays
        buckets = hashes(ids) & (len(a.heads) - 1)
        if not len(buckets):
            return
        # The last hash's position is one past the file's end, where nothing stands to be proposed.
        buckets = buckets[:-1]
        positions = np.arange(start + GRAM, start + len(ids), dtype=np.int32)
        order = np.argsort(buckets, kind="stable")
        grouped, placed = buckets[order], positions[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = grouped[1:] != grouped[:-1]
        before = np.empty(len(order), dtype=np.int32)
        before[1:] = placed[:-1]
        before[first] = a.heads[grouped[first]]
        a.previous[placed] = before
        last = np.ones(len(order), dtype=bool)
        last[:-1] = first[1:]
        a.heads[grouped[last]] = placed[last]


class View(Struct, frozen=True):
    """What one session may see."""

    roots: int = -1
    owner: int = DISK
    hidden: frozenset[int] = frozenset()

    def shows(self, number: int, roots: int, owner: int) -> bool:
        if owner != DISK:
            return owner == self.owner
        return bool(roots & self.roots) and number not in self.hidden


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

    def find(self, tail: Sequence[int], limit: int, view: View, language: int) -> Match | None:
        """The best place where the ids of `tail` stood before, and up to `limit` ids that followed.

        Longer matches win, then the same language, then the newest.
        """
        if len(tail) < GRAM:
            return None
        a = self._arrays
        wanted = list(tail[-self.LONGEST :])
        bucket = int(hashes(np.asarray(wanted[-GRAM:], dtype=np.int32))[0]) & (len(a.heads) - 1)
        position = int(a.heads[bucket])
        used, count = int(a.header[_USED]), int(a.header[_FILES])
        best: tuple[int, bool] | None = None
        found: tuple[int, int, int] | None = None
        for _ in range(self.CHAIN):
            if not 0 <= position < used:
                break
            number = int(np.searchsorted(a.files[:count, START], position, side="right")) - 1
            start, length, spoken, alive, roots, owner = (int(x) for x in a.files[number])
            if alive and start <= position < start + length and view.shows(number, roots, owner):
                agreed = self._agreement(wanted, start, position)
                rank = (agreed, spoken == language)
                if agreed >= GRAM and (best is None or rank > best):
                    best, found = rank, (position, start + length, number)
                    if agreed == len(wanted) and spoken == language:
                        break
            position = int(a.previous[position])
        if best is None or found is None:
            return None
        place, end, number = found
        return Match(a.tokens[place : min(end, place + limit)].tolist(), best[0], number)

    def _agreement(self, wanted: list[int], start: int, position: int) -> int:
        there = self._arrays.tokens[max(start, position - len(wanted)) : position].tolist()
        agreed = 0
        for mine, theirs in zip(reversed(wanted), reversed(there), strict=False):
            if mine != theirs:
                break
            agreed += 1
        return agreed

    def close(self) -> None:
        del self._arrays
        self._map.close()
