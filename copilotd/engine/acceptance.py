"""What becomes of a proposal: exact match when greedy, else the rejection sampling of Leviathan, Kalman and
Matias 2022 (Fast Inference from Transformers via Speculative Decoding, algorithm 1).

p is the target's filtered distribution, q the one a drafted id was drawn from. Accept x with probability
min(1, p(x) / q(x)); at the first rejection draw from the residual max(p - q, 0), normalised; when all are
accepted draw one more from p. Each id then follows p, whatever q was. A one-hot proposal has q(x) = 1.
"""

from __future__ import annotations

import torch
from msgspec import Struct

from copilotd.engine.drafters.base import Proposal
from copilotd.engine.generation import Sampling
from copilotd.engine.sampling import Randomness, best_of_each, distribution


class Verdict(Struct):
    ids: list[int]
    """the accepted ids and one more, which is the target's own"""
    accepted: int


def verify(rows: torch.Tensor, proposal: Proposal, sampling: Sampling, randomness: Randomness) -> Verdict:
    """Judge k proposed ids by the target's masked logits, float32 [k + 1, vocabulary]."""
    if sampling.greedy:
        return _exact_match(rows, proposal)
    return _rejection_sampling(rows, proposal, sampling, randomness)


def _exact_match(rows: torch.Tensor, proposal: Proposal) -> Verdict:
    best = best_of_each(rows)
    accepted = 0
    while accepted < len(proposal.ids) and proposal.ids[accepted] == best[accepted]:
        accepted += 1
    return Verdict(best[: accepted + 1], accepted)


def _rejection_sampling(
    rows: torch.Tensor, proposal: Proposal, sampling: Sampling, randomness: Randomness
) -> Verdict:
    for i, (token, q) in enumerate(zip(proposal.ids, proposal.q, strict=True)):
        p = distribution(rows[i], sampling)
        if not randomness.chance(acceptance_probability(p, q, token)):
            return Verdict([*proposal.ids[:i], randomness.choose(residual(p, q, token))], i)
    p = distribution(rows[-1], sampling)
    return Verdict([*proposal.ids, randomness.choose(p)], len(proposal.ids))


def acceptance_probability(p: torch.Tensor, q: torch.Tensor | None, token: int) -> float:
    """min(1, p / q) of the token; an id that q cannot draw is taken wherever p can."""
    target = float(p[token])
    draft = 1.0 if q is None else float(q[token])
    return min(1.0, target / draft) if draft > 0.0 else float(target > 0.0)


def residual(p: torch.Tensor, q: torch.Tensor | None, token: int) -> torch.Tensor:
    """Weights, float64 [vocabulary], of the id that stands in for a rejected one."""
    if q is None:
        left = p.clone()
        left[token] = 0.0
    else:
        left = (p - q).clamp_(min=0.0)
    return left if left.sum() > 0.0 else p  # p = q: the rejection was rounding
