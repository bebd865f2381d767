"""What a step costs on this device today, measured at load."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from statistics import median

import torch

from copilotd.engine.policy import Costs
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.sampling import best_of_each, log_probabilities

CONTEXT = (128, 1024)
"""ids in the cache while steps are measured, at least and at most: as in use, where they are fed soon enough"""
FEEDING_S = 0.1
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64)
CATCH_UP = (1, 2, 8, 32)
"""Rows of a draft model's steps: one id is drawn, many are fed that were written without it."""
REPEATS = 5
NEAR = 1.1
"""A number of threads is worth it when it is faster than fewer by this factor."""
HOPELESS = 3.0
"""A number of threads that was once so much slower than another is not measured further."""
BUSY_MS = 2.0
"""A barrier that takes so long waits for a thread that has no core: a scheduler's tick is 4 or 8."""
BUDGET_S = 0.4
"""Seconds for one model, unless measuring every width once takes longer."""


def measure(target: Runner, draft: Runner | None, max_draft_tokens: int) -> Costs:
    """Costs of target steps of up to max_draft_tokens + 1 rows, and of the draft's."""
    return Costs(
        target=step_costs(target, widths(max_draft_tokens + 1, target.chunk)),
        draft=() if draft is None else step_costs(draft, [rows for rows in CATCH_UP if rows <= draft.chunk]),
    )


def widths(most: int, chunk: int) -> list[int]:
    """Numbers of rows to measure: the small ones all, then more thinly, up to `most`."""
    most = min(most, chunk)
    return sorted({rows for rows in ROWS if rows < most} | {1, most})


def step_costs(runner: Runner, widths: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """(rows, milliseconds) ascending: medians, of measurements taken in turn so that a disturbance hits all
    widths alike. A wider step never counts as cheaper."""
    cache = context(runner, max(widths))
    times: dict[int, list[float]] = {rows: [] for rows in widths}
    for rows in widths:
        timed_step(runner, cache, rows)  # first calls set up kernels and buffers
    deadline = time.perf_counter() + BUDGET_S
    for _ in range(REPEATS):
        for rows in widths:
            times[rows].append(timed_step(runner, cache, rows))
        if time.perf_counter() > deadline:
            break
    table: list[tuple[int, float]] = []
    for rows in widths:
        least = table[-1][1] if table else 0.0
        table.append((rows, max(median(times[rows]), least)))
    return tuple(table)


def context(runner: Runner, room: int) -> Cache:
    """A cache of arbitrary ids, CONTEXT of them, with room for `room` more."""
    least, most = (min(length, runner.max_tokens - room) for length in CONTEXT)
    cache = runner.new_cache(most + room)
    deadline = time.perf_counter() + FEEDING_S
    while (lacking := (least if time.perf_counter() > deadline else most) - len(cache.ids)) > 0:
        runner.step(cache, [0] * min(runner.chunk, lacking), rows=0)
    return cache


def timed_step(runner: Runner, cache: Cache, rows: int) -> float:
    """Milliseconds of one step whose every row is verified, as the loop does; the cache is as before."""
    length = len(cache.ids)
    started = time.perf_counter()
    logits = runner.step(cache, [0] * rows, rows=rows)
    log_probabilities(logits, best_of_each(logits))  # reading the result waits for a device
    elapsed = (time.perf_counter() - started) * 1e3
    cache.truncate(length)
    return elapsed


def prefill_tokens_per_s(runner: Runner) -> float:
    """Measured on one chunk, of 64 ids at most so that it stays short."""
    rows = min(64, runner.chunk, runner.max_tokens // 2)
    cache = runner.new_cache(rows)
    best = 0.0
    for _ in range(2):
        started = time.perf_counter()
        best_of_each(runner.step(cache, [0] * rows, rows=1))
        best = max(best, rows / (time.perf_counter() - started))
        cache.truncate(0)
    return best


def barrier_ms() -> float:
    """The slower of most waits of the present threads for each other, over a few tiny parallel sums."""
    block = torch.ones(1 << 17)
    waits = []
    for _ in range(12):
        started = time.perf_counter()
        block.add_(1.0)
        waits.append((time.perf_counter() - started) * 1e3)
    return sorted(waits)[-4]


def fastest_threads(runner: Runner) -> int:
    """How many torch threads make a plain step and one of four rows fastest at this moment; among near equals
    the fewest.

    On a busy machine, where all threads wait for the slowest, that is fewer than it has cores; a number of
    threads that waits so long is not tried on the model, where it would take seconds. The number that was
    set is set again.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    before = torch.get_num_threads()
    cache = context(runner, 4)
    times: dict[int, float] = {}
    for threads in sorted({1, max(1, cores // 2), max(1, cores - 1), cores}):
        torch.set_num_threads(threads)
        if times and barrier_ms() > BUSY_MS:
            continue
        timed_step(runner, cache, 4)
        seen: list[float] = []
        while len(seen) < REPEATS:
            seen.append(timed_step(runner, cache, 1) + timed_step(runner, cache, 4))
            if times and seen[-1] > HOPELESS * min(times.values()):
                break
        times[threads] = median(seen)
    torch.set_num_threads(before)
    return min(threads for threads, ms in times.items() if ms <= min(times.values()) * NEAR)
