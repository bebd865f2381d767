"""What the daemon has counted, as far as a replay tells of it; two readings make a difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct, field


class Stage(Struct):
    count: int = 0
    ms: float = 0.0
    """in all"""


class Counts(Struct):
    typed_through: int = 0
    joined: int = 0
    target_steps: int = 0
    generated_tokens: int = 0
    prefill_tokens: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    prefill: dict[int, int] = field(default_factory=dict)
    """how many requests prefilled so many tokens"""
    stages: dict[str, Stage] = field(default_factory=dict)
    """waiting, prompt, prefill, decode, text: parts of `answer`, in which the model wrote; memory: whole
    answers without it"""

    def since(self, before: Counts) -> Counts:
        """What came about since an earlier reading."""
        return _combined(self, before, -1)

    def plus(self, other: Counts) -> Counts:
        return _combined(self, other, 1)


class Reading(Struct):
    """The daemon at a moment."""

    pid: int
    model: str
    """target, draft, quantisation and device in words"""
    counts: Counts


Read: TypeAlias = Callable[[], Awaitable[Reading]]


def _combined(one: Counts, other: Counts, sign: int) -> Counts:
    sums: dict[str, object] = {}
    for name in ("typed_through", "joined", "target_steps", "generated_tokens", "prefill_tokens"):
        sums[name] = getattr(one, name) + sign * getattr(other, name)
    for name in ("drafted", "accepted", "prefill"):
        a, b = getattr(one, name), getattr(other, name)
        sums[name] = {key: n for key in {**a, **b} if (n := a.get(key, 0) + sign * b.get(key, 0))}
    none = Stage()
    sums["stages"] = {
        name: Stage(a.count + sign * b.count, a.ms + sign * b.ms)
        for name in {**one.stages, **other.stages}
        for a, b in [(one.stages.get(name, none), other.stages.get(name, none))]
    }
    return Counts(**sums)  # type: ignore[arg-type]
