"""What a cache already holds of a sequence, and feeding it the rest."""

from __future__ import annotations

from collections.abc import Sequence

from copilotd.engine.generation import Cancelled
from copilotd.engine.runner import Cache, Runner


def common_prefix(a: list[int], b: list[int]) -> int:
    """Length of the longest common prefix, by bisection over slices: lists are compared in C."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def reuse(cache: Cache, sequence: list[int]) -> int:
    """Keep the rows the cache shares with the sequence and forget the others; how many were kept.

    The last id is always left to be stepped, for its logits.
    """
    kept = min(common_prefix(cache.ids, sequence), len(sequence) - 1)
    cache.truncate(kept)
    return kept


def feed(runner: Runner, cache: Cache, sequence: Sequence[int], leave: int, cancelled: Cancelled) -> bool:
    """Step the sequence chunk by chunk until at most `leave` ids (at least one) are not in the cache.

    False when cancelled in between; what was computed stays in the cache.
    """
    while (lacking := len(sequence) - len(cache.ids)) > leave:
        if cancelled():
            return False
        start = len(cache.ids)
        runner.step(cache, sequence[start : start + min(runner.chunk, lacking - 1)], rows=0)
    return True


def warm(runner: Runner, cache: Cache, sequence: list[int], cancelled: Cancelled) -> bool:
    """Have all but the last id in the cache, and keep what follows them there if they are; False when
    cancelled in between."""
    if common_prefix(cache.ids, sequence) >= len(sequence) - 1:
        return True
    reuse(cache, sequence)
    return feed(runner, cache, sequence, leave=1, cancelled=cancelled)
