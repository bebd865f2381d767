"""Filters, edge values and the seeded draw."""

from __future__ import annotations

import itertools

import pytest
import torch
from scipy.stats import chisquare

from copilotd.engine.generation import Sampling
from copilotd.engine.sampling import Seeded, best, distribution, log_probabilities, masked

ROW = torch.tensor([1.0, 3.0, 2.0, 3.0, -1.0])


def reference(row: torch.Tensor, sampling: Sampling) -> list[float]:
    """The same law written as the definition: keep ids one by one from the likeliest on."""
    logits = [value / sampling.temperature for value in row.double().tolist()]
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = torch.softmax(torch.tensor([logits[i] for i in order], dtype=torch.float64), 0).tolist()
    before = itertools.accumulate(weights, initial=0.0)
    kept = {i: w for i, w, b in zip(order, weights, before, strict=False) if b == 0.0 or b < sampling.top_p}
    return [kept.get(i, 0.0) / sum(kept.values()) for i in range(len(logits))]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.8, 0.999, 1.0])
def test_the_law_is_the_definition(temperature: float, top_k: int, top_p: float) -> None:
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    law = distribution(ROW, sampling)
    assert law.dtype == torch.float64
    assert law.tolist() == pytest.approx(reference(ROW, sampling), abs=1e-12)


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=1.0, top_p=0.95), Sampling(temperature=2.0, top_k=300)]
)
@pytest.mark.parametrize("scale", [0.0, 0.5, 5.0])
def test_a_large_vocabulary_has_the_same_law(sampling: Sampling, scale: float) -> None:
    """Few ids or nearly all hold top_p; with ties everywhere."""
    row = (torch.randn(3000, generator=torch.Generator().manual_seed(1)) * scale).round(decimals=1)
    assert distribution(row, sampling).tolist() == pytest.approx(reference(row, sampling), abs=1e-12)


def test_the_mask_comes_before_top_k() -> None:
    mask = torch.tensor([True, False, True, False, True])
    law = distribution(masked(ROW[None], [mask])[0], Sampling(temperature=1.0, top_k=2))
    assert law.nonzero().flatten().tolist() == [0, 2]


def test_a_mask_leaves_the_other_rows_and_the_input_alone() -> None:
    rows = torch.stack([ROW, ROW])
    out = masked(rows, [torch.tensor([False, True, True, True, True]), None])
    assert out[0, 0] == -torch.inf
    assert torch.equal(out[1], ROW)
    assert torch.equal(rows[0], ROW)


def test_ties_go_to_the_lowest_id() -> None:
    assert best(ROW) == 1
    assert best(torch.zeros(151_665)) == 0


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (Sampling(temperature=0.0), True),
        (Sampling(temperature=0.0, top_p=0.9), True),
        (Sampling(temperature=0.0, top_p=0.0), True),
        (Sampling(temperature=1e-6), True),
        (Sampling(temperature=1.0, top_p=0.0), True),
        (Sampling(temperature=1.0, top_k=1), True),
        (Sampling(temperature=0.01), False),
        (Sampling(temperature=1.0), False),
    ],
)
def test_what_counts_as_greedy(sampling: Sampling, greedy: bool) -> None:
    assert sampling.greedy == greedy


def test_logprobs_are_of_the_masked_row() -> None:
    rows = masked(ROW.repeat(3, 1), [torch.tensor([False, True, True, False, False]), None, None])
    assert log_probabilities(rows, [2]) == pytest.approx([-1.3132617], abs=1e-6)
    assert log_probabilities(rows, [2, 0]) == [
        log_probabilities(rows[i : i + 1], [t])[0] for i, t in ((0, 2), (1, 0))
    ]
    assert log_probabilities(rows, []) == []


def test_the_draw_follows_its_weights() -> None:
    weights = torch.tensor([0.0, 0.1, 0.0, 0.6, 0.3, 0.0], dtype=torch.float64)
    randomness = Seeded(3)
    counts = [0] * 6
    for _ in range(20_000):
        counts[randomness.choose(weights)] += 1
    assert [counts[i] for i in (0, 2, 5)] == [0, 0, 0]
    assert chisquare([counts[i] for i in (1, 3, 4)], [2000, 12000, 6000]).pvalue > 1e-4


def test_one_seed_one_sequence() -> None:
    weights = torch.ones(1000, dtype=torch.float64)
    first, again, other = Seeded(7), Seeded(7), Seeded(8)
    drawn = [first.choose(weights) for _ in range(20)]
    assert drawn == [again.choose(weights) for _ in range(20)]
    assert drawn != [other.choose(weights) for _ in range(20)]


def test_a_draw_at_the_very_end_is_one_that_has_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    randomness = Seeded(0)
    monkeypatch.setattr(randomness, "_uniform", lambda: 1.0)
    assert randomness.choose(torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)) == 1
