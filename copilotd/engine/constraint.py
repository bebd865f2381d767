"""A constraint followed along ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from copilotd.engine.generation import Constraint


class Walk:
    """Where the automaton of a request stands; without a constraint every id may come everywhere."""

    def __init__(self, constraint: Constraint | None) -> None:
        self._constraint = constraint
        self._state = 0 if constraint is None else constraint.start()

    def mask(self) -> torch.Tensor | None:
        return None if self._constraint is None else self._constraint.mask(self._state)

    def advance(self, ids: Sequence[int]) -> None:
        """Go on by ids that are allowed."""
        if self._constraint is not None:
            for token in ids:
                self._state = self._constraint.next(self._state, token)

    def ahead(self, ids: Sequence[int]) -> list[torch.Tensor | None]:
        """The masks of the rows after 0, 1, … of `ids`, up to the first id that its row forbids.

        So len(result) - 1 of the ids are allowed.
        """
        if self._constraint is None:
            return [None] * (len(ids) + 1)
        state = self._state
        masks = [self._constraint.mask(state)]
        for token in ids:
            mask = masks[-1]
            if mask is not None and not mask[token]:
                break
            state = self._constraint.next(state, token)
            masks.append(self._constraint.mask(state))
        return masks

    def copy(self) -> Walk:
        twin = Walk(self._constraint)
        twin._state = self._state
        return twin
