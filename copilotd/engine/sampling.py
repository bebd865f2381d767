"""From a row of logits to an id: the filters, the best id, and the one source of randomness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from copilotd.engine.generation import Sampling


class Randomness(Protocol):
    """Every random decision of one generation. A test may walk through all outcomes of it instead."""

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        ...

    def choose(self, weights: torch.Tensor) -> int:
        """An index of float64 [n], drawn in proportion to its weight; never one of weight 0."""
        ...


class Seeded:
    """One generator for drafts and verification alike: two of one seed would draw the same numbers, and a
    draft that knows the dice of its judge bends the law."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def _uniform(self) -> float:
        return torch.rand((), generator=self._generator, dtype=torch.float64).item()

    def chance(self, probability: float) -> bool:
        return self._uniform() < probability

    def choose(self, weights: torch.Tensor) -> int:
        cumulative = weights.cumsum(0)
        threshold = cumulative[-1] * self._uniform()
        index = int(torch.searchsorted(cumulative, threshold, right=True))
        if index == len(weights):  # the product was rounded up to the whole sum
            index = int(weights.nonzero()[-1])
        return index


def masked(rows: torch.Tensor, masks: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Logits [rows, vocabulary] with the ids that each row's mask forbids at -inf; a mask allows some id."""
    if all(mask is None for mask in masks):
        return rows
    rows = rows.clone()
    for row, mask in zip(rows, masks, strict=True):
        if mask is not None:
            row.masked_fill_(~mask[: len(row)].to(row.device), -torch.inf)
    return rows


def best(row: torch.Tensor) -> int:
    """The id of the greatest logit; among equals the lowest id."""
    return best_of_each(row[None])[0]


def best_of_each(rows: torch.Tensor) -> list[int]:
    """The best id of every row. On a CPU by numpy: over Qwen's 151,646 ids torch's own takes 86 µs a row,
    eight rows 1.5 % of a step, and numpy's 8 µs."""
    ids: list[int] = (rows.numpy() if rows.device.type == "cpu" else rows).argmax(-1).tolist()
    return ids


def distribution(row: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """float64 [vocabulary]: the law an id is drawn from, after temperature, top-k and top-p in this order.

    `row` is already masked, and `sampling` not greedy. Among equal logits the lower ids are kept.
    """
    logits = row.double() / sampling.temperature
    if not 0 < sampling.top_k < len(logits) and sampling.top_p >= 1.0:
        return torch.softmax(logits, 0)
    if sampling.top_k:
        ids = highest(logits, sampling.top_k)
        kept = torch.softmax(logits[ids], 0)
    else:
        ids, kept = nucleus(logits, sampling.top_p)
    kept[kept.cumsum(0) - kept >= sampling.top_p] = 0.0  # the first is kept: 0 is before it
    return torch.zeros_like(logits).scatter_(0, ids, kept / kept.sum())


def highest(logits: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` best ids, the best first and the lower first among equals; all if there are fewer."""
    if count >= len(logits):
        return torch.sort(logits, descending=True, stable=True).indices
    least = torch.topk(logits, count).values[-1]
    ids = (logits >= least).nonzero().flatten()
    return ids[torch.sort(logits[ids], descending=True, stable=True).indices[:count]]


def nucleus(logits: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The best ids that hold top_p of the probability, and maybe some more, with their probabilities.

    A few ids hold it nearly always, and sorting a whole vocabulary takes longer than a step of a model.
    """
    total, count = torch.logsumexp(logits, 0), 64
    while True:
        ids = highest(logits, count)
        kept = torch.exp(logits[ids] - total)
        if len(ids) == len(logits) or kept.sum() >= top_p:
            return ids, kept
        count *= 16


def log_probabilities(rows: torch.Tensor, tokens: Sequence[int]) -> list[float]:
    """ln of each masked row's probability of its token, at temperature 1; rows beyond the tokens are left."""
    laws = torch.log_softmax(rows[: len(tokens)], -1)  # half the time of logsumexp
    if laws.device.type == "cpu":  # torch takes as long to pick an id as for the law of a small vocabulary
        return [law[token].item() for law, token in zip(laws.numpy(), tokens, strict=True)]
    picked: list[float] = laws[range(len(tokens)), tokens].tolist()
    return picked
