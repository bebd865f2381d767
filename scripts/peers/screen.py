"""What a person typing sees, whoever suggests: the same rules for every contender."""

from __future__ import annotations

import time

from msgspec import Struct


class Stroke(Struct):
    """A place where a suggestion was wanted, and when one that fits the screen was there."""

    at: float
    """seconds on the clock of `time.perf_counter`"""
    typed_through: bool = False
    """what was on screen went on as typed"""
    ms: float | None = None
    """until the first complete line of a suggestion that fitted what was then on screen; None: never"""
    asked: bool = False
    """that suggestion was asked for at this very stroke, or at the first retry after it"""
    line: str = ""
    """of that suggestion"""


class Screen:
    """One document at a time, its cursor, and the suggestion shown."""

    def __init__(self) -> None:
        self.strokes: list[Stroke] = []
        self._waiting: list[Stroke] = []
        self._before = self._after = ""
        self._ghost: tuple[str, str, str] | None = None

    def clear(self) -> None:
        """Another document: nothing is shown, nobody waits any more."""
        self._ghost = None
        self._waiting.clear()

    def moved(self, text: str, cursor: int) -> Stroke:
        """The cursor stands here now, after typing or a jump."""
        self._before, self._after = text[:cursor], text[cursor:]
        stroke = Stroke(time.perf_counter(), typed_through=self._rest(self._ghost) is not None)
        if not stroke.typed_through:
            self._ghost = None
        self.strokes.append(stroke)
        self._waiting.append(stroke)
        return stroke

    def show(self, before: str, after: str, suggestion: str, stroke: Stroke, ready: float) -> bool:
        """A suggestion for a text and cursor that may have changed since; `ready` is when its first line was
        complete. False: it does not fit any more."""
        ghost = (before, after, suggestion)
        rest = self._rest(ghost)
        if rest is None:
            return False
        self._ghost = ghost
        for waiting in self._waiting:
            waiting.ms = max(0.0, ready - waiting.at) * 1e3
            waiting.line = rest.lstrip("\n").split("\n")[0]
        stroke.asked = stroke in self._waiting
        self._waiting.clear()
        return True

    def _rest(self, ghost: tuple[str, str, str] | None) -> str | None:
        """What is left of a suggestion after what was typed since; None where nothing is, or it differs."""
        if ghost is None:
            return None
        before, after, suggestion = ghost
        if after != self._after or not self._before.startswith(before):
            return None
        typed = self._before[len(before) :]
        rest = suggestion[len(typed) :]
        return rest if suggestion.startswith(typed) and rest.strip() else None
