"""KV slots: which cache a request works on, and which makes room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from copilotd.engine.prefix import common_prefix
from copilotd.engine.runner import Cache, Runner

PER_DOCUMENT = 2
WORTH_COPYING = 32
"""rows more than a slot has itself"""


def document(slot: Hashable) -> Hashable:
    """A slot's key is (document, role); any other key is a document with one role."""
    return slot[0] if isinstance(slot, tuple) and len(slot) == 2 else slot


class Slots:
    """Caches by key, the least recently used out; two per document and `budget_bytes` in all at most.

    One slot is always granted, whatever the budget.
    """

    def __init__(self, runner: Runner, capacity: int, budget_bytes: int) -> None:
        self._runner = runner
        self.capacity = capacity
        """tokens of every slot"""
        self._slot_bytes = runner.cache_bytes(capacity)
        self._most = max(1, budget_bytes // max(1, self._slot_bytes))
        self._caches: OrderedDict[Hashable, Cache] = OrderedDict()
        """least recently used first"""

    @property
    def bytes(self) -> int:
        return len(self._caches) * self._slot_bytes

    def peek(self, key: Hashable) -> Cache | None:
        """The cache of this very key, if there is one."""
        return self._caches.get(key)

    def acquire(self, key: Hashable, sequence: Sequence[int]) -> Cache:
        """The key's cache; or, where the document has its two, the one that shares most with `sequence`."""
        cache = self._caches.pop(key, None)
        if cache is None:
            siblings = [other for other in self._caches if document(other) == document(key)]
            if len(siblings) >= PER_DOCUMENT:
                ids = list(sequence)
                nearest = max(siblings, key=lambda other: common_prefix(self._caches[other].ids, ids))
                cache = self._caches.pop(nearest)
            elif len(self._caches) >= self._most:
                _, cache = self._caches.popitem(last=False)
            else:
                cache = self._runner.new_cache(self.capacity)
        self._caches[key] = cache
        self._take_over(key, cache, list(sequence))
        return cache

    def _take_over(self, key: Hashable, cache: Cache, sequence: list[int]) -> None:
        """Copy the rows that the document's other slot has of the sequence, where they are worth a copy."""
        shared = common_prefix(cache.ids, sequence)
        for other, sibling in self._caches.items():
            if other != key and document(other) == document(key):
                theirs = common_prefix(sibling.ids, sequence)
                if theirs >= shared + WORTH_COPYING and sibling.capacity <= cache.capacity:
                    cache.become(sibling, theirs)
                    shared = theirs

    def forget(self, closed: Hashable) -> None:
        """Drop the caches of a document."""
        for key in [key for key in self._caches if document(key) == closed]:
            del self._caches[key]

    def shrink(self) -> bool:
        """Halve the budget, the least recently used out; False when one slot is all there is."""
        if self._most == 1:
            return False
        self._most = min(self._most, len(self._caches) or 1) // 2 or 1
        while len(self._caches) > self._most:
            self._caches.popitem(last=False)
        return True

    def drop(self, key: Hashable) -> None:
        """Forget a cache whose state is unknown after an error."""
        self._caches.pop(key, None)
