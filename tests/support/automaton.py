"""A small constraint: the text written must begin with a given string (token healing's shape)."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class BeginsWith:
    """The state is how many characters of `start` are out; every token stands for a string."""

    def __init__(self, start: str, strings: Sequence[str]) -> None:
        self._text = start
        self._strings = strings

    def start(self) -> int:
        return 0

    def next(self, state: int, token: int) -> int:
        return min(state + len(self._strings[token]), len(self._text))

    def mask(self, state: int) -> torch.Tensor | None:
        rest = self._text[state:]
        if not rest:
            return None
        return torch.tensor([bool(s) and (rest.startswith(s) or s.startswith(rest)) for s in self._strings])
