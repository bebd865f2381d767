"""Plain against speculative decoding, on the same prompts, one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from msgspec import Struct
from msgspec.structs import replace

from copilotd.engine.engine import Engine
from copilotd.engine.generation import Counters, Generation, GenerationRequest


class Decoding(Struct, frozen=True):
    """Speeds are of the ids after a prompt's first round, which belongs to the prefill, over all prompts."""

    plain_tokens_per_s: float
    speculative_tokens_per_s: float
    speedup: float
    acceptance: float
    """accepted of proposed ids, all sources together"""
    tokens_per_step: float
    identical: bool
    """every prompt gave the same ids both ways"""
    step_ms: dict[str, float]
    """of a target step, by its rows"""
    draft_step_ms: float
    """0 without a draft model"""
    ceiling: float
    """the speedup that free drafts, all accepted, would have: max over M of M t(1) / t(M)"""


class Timing:
    """Ids written after the first round, and the seconds they took."""

    def __init__(self) -> None:
        self.ids = 0
        self.seconds = 0.0

    def run(self, engine: Engine, request: GenerationRequest) -> Generation:
        rounds: list[tuple[float, int]] = []

        def emit(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
            rounds.append((time.perf_counter(), len(ids)))
            return False

        generation = engine.generate(request, lambda: False, emit)
        if rounds:
            self.ids += sum(count for _, count in rounds[1:])
            self.seconds += rounds[-1][0] - rounds[0][0]
        return generation

    @property
    def per_second(self) -> float:
        return self.ids / self.seconds if self.seconds else 0.0


def decode(engine: Engine, requests: Sequence[GenerationRequest]) -> Decoding:
    """Each request plain and then speculating, with a warm draft model and caches apart.

    Raises ValueError when no prompt gave enough ids to time.
    """
    plain, speculative = Timing(), Timing()
    counters = Counters()
    identical = True
    for request in requests:
        off = plain.run(engine, replace(request, speculation="off", slot=("bench", "plain")))
        request = replace(request, speculation="auto", slot=("bench", "speculative"))
        engine.warm_draft(request, lambda: False)
        on = speculative.run(engine, request)
        counters.add(on.counters)
        identical &= off.ids == on.ids
    if not plain.seconds or not speculative.seconds:
        raise ValueError("no prompt gave an answer long enough to time")
    drafted, accepted = sum(counters.drafted.values()), sum(counters.accepted.values())
    costs = engine.costs
    return Decoding(
        plain_tokens_per_s=plain.per_second,
        speculative_tokens_per_s=speculative.per_second,
        speedup=speculative.per_second / plain.per_second,
        acceptance=accepted / drafted if drafted else 0.0,
        tokens_per_step=1.0 + accepted / counters.target_steps,
        identical=identical,
        step_ms={str(rows): ms for rows, ms in costs.target},
        draft_step_ms=costs.draft_ms(1) if costs.draft else 0.0,
        ceiling=max(rows * costs.target_ms(1) / ms for rows, ms in costs.target),
    )


def read_bandwidth(device: str) -> float:
    """Bytes per second at which the device reads its memory, the best of a few passes over 256 MB."""
    block = torch.ones(64 * 1024 * 1024, device=device)
    fastest = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        float(block.sum())
        fastest = min(fastest, time.perf_counter() - started)
    return block.nbytes / fastest
