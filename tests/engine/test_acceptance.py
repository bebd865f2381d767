"""The law of acceptance, enumerated: whatever was proposed, each id follows the target's distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.stats import chisquare

from copilotd.engine.acceptance import acceptance_probability, residual, verify
from copilotd.engine.drafters.base import Proposal
from copilotd.engine.generation import Sampling
from copilotd.engine.sampling import Randomness, Seeded, distribution
from tests.support.enumeration import Enumerated, law_of

SAMPLINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.6, top_k=3),
    Sampling(temperature=1.7, top_p=0.7),
    Sampling(temperature=0.8, top_k=3, top_p=0.9),
]
V = 4


def rows_of(seed: int, count: int) -> torch.Tensor:
    return torch.randn(count, V, generator=torch.Generator().manual_seed(seed)) * 2


def q_of(seed: int) -> torch.Tensor:
    return torch.softmax(rows_of(seed, 1)[0].double(), 0)


def normalised(weights: torch.Tensor) -> torch.Tensor:
    return weights / weights.sum()


Q: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "another law": lambda p: q_of(5),
    "p = q": lambda p: p.clone(),
    "q = 0 where p is not": lambda p: torch.tensor([0.0, 0.5, 0.5, 0.0], dtype=torch.float64),
    "p = 0 where q is not": lambda p: normalised(torch.where(p > 0, 0.1, 5.0).double()),
    "disjoint": lambda p: normalised((p == 0).double()) if (p == 0).any() else q_of(6),
    "certain": lambda p: torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=torch.float64),
}


def first_id(row: torch.Tensor, q: torch.Tensor, sampling: Sampling) -> Callable[[Randomness], int]:
    """One round with one drafted id; the first id that comes out."""
    rows = torch.stack([row, row])

    def run(randomness: Randomness) -> int:
        proposal = Proposal([randomness.choose(q)], ["draft"], [q])
        return verify(rows, proposal, sampling, randomness).ids[0]

    return run


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", Q)
@pytest.mark.parametrize("seed", range(3))
def test_a_drafted_id_follows_p(sampling: Sampling, name: str, seed: int) -> None:
    row = rows_of(seed, 1)[0]
    p = distribution(row, sampling)
    law = law_of(first_id(row, Q[name](p), sampling))
    for token in range(V):
        assert law.get(token, 0.0) == pytest.approx(float(p[token]), abs=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("token", range(V))
def test_a_one_hot_proposal_follows_p(sampling: Sampling, token: int) -> None:
    rows = rows_of(2, 2)
    p = distribution(rows[0], sampling)

    def run(randomness: Enumerated) -> int:
        return verify(rows, Proposal([token], ["lookup"], [None]), sampling, randomness).ids[0]

    law = law_of(run)
    for other in range(V):
        assert law.get(other, 0.0) == pytest.approx(float(p[other]), abs=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_without_a_proposal_the_id_is_drawn_from_p(sampling: Sampling) -> None:
    rows = rows_of(4, 1)
    law = law_of(lambda randomness: verify(rows, Proposal(), sampling, randomness).ids[0])
    p = distribution(rows[0], sampling)
    assert [law.get(i, 0.0) for i in range(V)] == pytest.approx(p.tolist(), abs=1e-12)


def test_the_acceptance_rate_is_the_overlap() -> None:
    """Leviathan et al. 2022, corollary 3.6: the rate is the sum of min(p, q)."""
    row, q, sampling = rows_of(1, 1)[0], q_of(9), SAMPLINGS[0]
    rows = torch.stack([row, row])

    def run(randomness: Enumerated) -> int:
        proposal = Proposal([randomness.choose(q)], ["draft"], [q])
        return verify(rows, proposal, sampling, randomness).accepted

    overlap = float(torch.minimum(distribution(row, sampling), q).sum())
    assert law_of(run)[1] == pytest.approx(overlap, abs=1e-12)


def test_edges_of_the_ratio() -> None:
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert acceptance_probability(p, q, 0) == 0.5
    assert acceptance_probability(p, q, 1) == 1.0
    assert acceptance_probability(p, q, 2) == 0.0
    assert acceptance_probability(p, None, 1) == 0.5
    assert torch.equal(residual(p, p, 0), p)
    assert residual(p, q, 0).tolist() == [0.0, 0.5, 0.0]
    assert residual(p, None, 0).tolist() == [0.0, 0.5, 0.0]


def test_greedy_takes_what_it_would_have_written() -> None:
    rows = torch.tensor([[0.0, 1, 0, 1], [0, 0, 2, 0], [9, 0, 0, 0]])
    for ids, expected, accepted in [
        ([1, 2], [1, 2, 0], 2),
        ([1, 3], [1, 2], 1),
        ([3, 2], [1], 0),  # a tie goes to the lowest id, drafted or not
    ]:
        verdict = verify(rows, Proposal(ids, ["x"] * 2, [None] * 2), Sampling(), Seeded(0))
        assert (verdict.ids, verdict.accepted) == (expected, accepted)
    assert verify(rows[:1], Proposal(), Sampling(), Seeded(0)).ids == [1]


def test_chi_square_on_many_draws() -> None:
    """With the seeded generator, drafts and verdicts from the same stream."""
    row, q, sampling, randomness = rows_of(3, 1)[0], q_of(11), Sampling(temperature=0.9), Seeded(1)
    run = first_id(row, q, sampling)
    counts = [0] * V
    draws = 100_000
    for _ in range(draws):
        counts[run(randomness)] += 1
    p = distribution(row, sampling)
    result = chisquare(counts, (p * draws).tolist())
    assert result.pvalue > 1e-4
    assert math.isfinite(result.statistic)
