"""What is left of an earlier completion for this spot."""

from __future__ import annotations

from collections.abc import Sequence

NAME = "echo"


def guess(echo: Sequence[int], emitted: Sequence[int], limit: int) -> list[int]:
    """The next ids of the echo while what was emitted followed it, else none."""
    done = len(emitted)
    return list(echo[done : done + limit]) if list(echo[:done]) == list(emitted) else []
