"""Every outcome of a random computation, each with its exact probability."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch


class Enumerated:
    """A Randomness that follows a script of decisions and notes the alternatives of the further ones."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self.path: list[int] = []
        self.options: list[list[int]] = []
        self.probability = 1.0

    def _decide(self, weights: list[float]) -> int:
        total = sum(weights)
        options = [i for i, weight in enumerate(weights) if weight > 0.0]
        at = len(self.path)
        choice = self._script[at] if at < len(self._script) else options[0]
        self.path.append(choice)
        self.options.append(options)
        self.probability *= weights[choice] / total
        return choice

    def chance(self, probability: float) -> bool:
        return self._decide([1.0 - probability, probability]) == 1

    def choose(self, weights: torch.Tensor) -> int:
        return self._decide(weights.tolist())


def law_of(run: Callable[[Enumerated], Hashable]) -> dict[Hashable, float]:
    """Run for every sequence of decisions; the probability of each result."""
    law: dict[Hashable, float] = {}
    script: list[int] = []
    while True:
        randomness = Enumerated(script)
        result = run(randomness)
        law[result] = law.get(result, 0.0) + randomness.probability
        path, options = randomness.path, randomness.options
        while path and path[-1] == options[-1][-1]:
            path.pop()
            options.pop()
        if not path:
            return law
        script = [*path[:-1], options[-1][options[-1].index(path[-1]) + 1]]
