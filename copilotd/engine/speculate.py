"""The speculation loop (Leviathan, Kalman and Matias 2022): propose, one target step, accept, roll back."""

from __future__ import annotations

import time

from copilotd.engine.acceptance import verify
from copilotd.engine.constraint import Walk
from copilotd.engine.drafters.base import Drafter, Proposal
from copilotd.engine.generation import (
    Cancelled,
    Counters,
    Emit,
    Finish,
    Generation,
    GenerationRequest,
    Proposed,
)
from copilotd.engine.prefix import feed, reuse
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.sampling import Randomness, log_probabilities, masked


def speculate(
    target: Runner,
    cache: Cache,
    drafter: Drafter,
    request: GenerationRequest,
    randomness: Randomness,
    cancelled: Cancelled,
    emit: Emit,
    *,
    max_new_tokens: int,
    max_draft_tokens: int,
) -> Generation:
    """Write at most `max_new_tokens` ids, which together with the prompt fit into the cache.

    When it returns, the cache holds a prefix of prompt and emitted ids: everything that was computed, but
    nothing rejected and no stop id.
    """
    sequence = list(request.prompt)
    walk = Walk(request.constraint)
    run = Generation(ids=[], logprobs=[], finish="length", counters=Counters())
    clock = time.perf_counter()
    drafter.begin(request, randomness)

    reused = run.counters.reused_tokens = reuse(cache, sequence)
    fed = feed(target, cache, sequence, leave=target.chunk, cancelled=cancelled)
    run.counters.prefill_tokens = len(cache.ids) - reused
    if not fed:
        return ended(run, "cancelled")

    while len(run.ids) < max_new_tokens:
        pending = sequence[len(cache.ids) :]  # the prompt's last chunk, later the last id
        limit = min(
            max_draft_tokens,
            max_new_tokens - len(run.ids) - 1,
            target.chunk - len(pending),
            cache.capacity - len(sequence),
        )
        proposal = drafter.propose(run.ids, limit, len(pending), cancelled) if limit > 0 else Proposal()
        masks = walk.ahead(proposal.ids)
        proposal.cut(len(masks) - 1)
        if cancelled():
            return ended(run, "cancelled")

        step_clock = time.perf_counter()
        rows = masked(target.step(cache, pending + proposal.ids, rows=len(masks)), masks)
        verdict = verify(rows, proposal, request.sampling, randomness)
        fresh = before_stop(verdict.ids, request.stop_ids)
        logprobs = log_probabilities(rows, fresh)
        step_ms = (time.perf_counter() - step_clock) * 1e3
        cache.truncate(len(sequence) + min(verdict.accepted, len(fresh)))

        run.ids += fresh
        run.counters.generated_tokens += len(fresh)
        run.logprobs += logprobs
        sequence += fresh
        walk.advance(fresh)
        drafter.learn(verdict.accepted, fresh, len(pending) + len(proposal.ids), step_ms)
        count(run.counters, proposal, verdict.accepted)
        if proposal.ids:
            run.proposed.append(Proposed(proposal.ids, proposal.source, verdict.accepted))
        now = time.perf_counter()
        if run.counters.target_steps == 1:
            run.counters.prefill_tokens += len(pending)
            run.counters.prefill_ms, clock = (now - clock) * 1e3, now
        run.counters.decode_ms = (now - clock) * 1e3

        if fresh and emit(fresh, logprobs):
            return ended(run, "halted")
        if len(fresh) < len(verdict.ids):
            return ended(run, "stop")
    return run


def ended(run: Generation, why: Finish) -> Generation:
    run.finish = why
    return run


def before_stop(ids: list[int], stop_ids: frozenset[int]) -> list[int]:
    return next((ids[:i] for i, token in enumerate(ids) if token in stop_ids), ids)


def count(counters: Counters, proposal: Proposal, accepted: int) -> None:
    """Account for one round."""
    counters.target_steps += 1
    counters.draft_steps += proposal.steps
    for i, source in enumerate(proposal.source):
        for tally, amount in (
            (counters.drafted, 1),
            (counters.reached, i <= accepted),
            (counters.accepted, i < accepted),
        ):
            tally[source] = tally.get(source, 0) + amount
