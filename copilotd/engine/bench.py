"""Plain against speculative decoding, on the same prompts, one after the other."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from statistics import median

import torch
from msgspec import Struct
from msgspec.structs import replace

from copilotd.engine.engine import Engine
from copilotd.engine.generation import Counters, Generation, GenerationRequest, Speculation


class Decoding(Struct, frozen=True):
    """Speeds are of the ids after a prompt's first, which belongs to the prefill; medians over prompts."""

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


def decode(engine: Engine, requests: Sequence[GenerationRequest]) -> Decoding:
    """Each request plain and speculating, in turn, with prompts prefilled and a warm draft model.

    Raises ValueError when no prompt gave at least two ids.
    """
    plain: list[float] = []
    speculative: list[float] = []
    counters = Counters()
    identical = True
    for request in requests:
        off, off_speed = timed(engine, request, "off", "plain")
        on, on_speed = timed(engine, request, "auto", "speculative")
        identical &= off.ids == on.ids
        if off_speed and on_speed:
            plain.append(off_speed)
            speculative.append(on_speed)
            counters.add(on.counters)
    if not plain:
        raise ValueError("no prompt gave an answer long enough to time")
    step_ms = {str(rows): ms for rows, ms in engine.costs.target}
    drafted, accepted = sum(counters.drafted.values()), sum(counters.accepted.values())
    return Decoding(
        plain_tokens_per_s=median(plain),
        speculative_tokens_per_s=median(speculative),
        speedup=median(s / p for s, p in zip(speculative, plain, strict=True)),
        acceptance=accepted / drafted if drafted else 0.0,
        tokens_per_step=1.0 + accepted / counters.target_steps,
        identical=identical,
        step_ms=step_ms,
        draft_step_ms=engine.costs.draft_ms(1) if engine.costs.draft else 0.0,
        ceiling=max(rows * step_ms["1"] / ms for rows, ms in engine.costs.target),
    )


def timed(
    engine: Engine, request: GenerationRequest, speculation: Speculation, slot: Hashable
) -> tuple[Generation, float]:
    """The generation and its ids per second after the first round; 0 when it had no second."""
    request = replace(request, speculation=speculation, slot=("bench", slot))
    if speculation != "off":
        engine.warm_draft(request, lambda: False)
    rounds: list[tuple[float, int]] = []

    def emit(ids: Sequence[int]) -> bool:
        rounds.append((time.perf_counter(), len(ids)))
        return False

    generation = engine.generate(request, lambda: False, emit)
    if len(rounds) < 2:
        return generation, 0.0
    return generation, sum(count for _, count in rounds[1:]) / (rounds[-1][0] - rounds[0][0])


def read_bandwidth(device: str) -> float:
    """Bytes per second at which the device reads its memory, the best of a few passes over 256 MB."""
    block = torch.ones(64 * 1024 * 1024, device=device)
    fastest = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        float(block.sum())
        fastest = min(fastest, time.perf_counter() - started)
    return block.nbytes / fastest
