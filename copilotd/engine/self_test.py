"""What may be claimed of a model on this very device: the same bits whatever rides along in a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec import Struct

from copilotd.engine.runner import Cache, Runner

_TOKENS = 24
_WIDTHS = (1, 2, 3, 4, 5, 8)


class Identity(Struct, frozen=True):
    """The two claims of losslessness, as tested at start-up."""

    speculation: bool
    """a row's logits depend neither on the number nor on the content of the rows beside it"""
    cache: bool
    """prefill in any chunks and decoding one by one give the same keys and values, and so the same logits"""


def self_test(runner: Runner) -> Identity:
    """Some 30 small steps. Ids are arbitrary; a model answers to any."""
    length = min(_TOKENS, runner.max_tokens - max(_WIDTHS))
    ids = [(7 * i + 3) % runner.vocabulary for i in range(length + max(_WIDTHS))]
    prompt, following = ids[:length], ids[length:]
    whole = _prefilled(runner, prompt, runner.chunk)
    alone = runner.step(whole, following[:1], 1)[0]
    return Identity(
        speculation=all(
            _same_beside_others(runner, whole, length, following, alone, rows) for rows in _WIDTHS
        ),
        cache=all(
            torch.equal(runner.step(_prefilled(runner, prompt, chunk), following[:1], 1)[0], alone)
            for chunk in (1, 3, 7)
            if chunk <= runner.chunk
        ),
    )


def gives_numbers(runner: Runner) -> bool:
    """False where a step comes to NaN, as with damaged weights: every token would be the first one."""
    rows = min(2, runner.chunk, runner.max_tokens)
    return not bool(runner.step(runner.new_cache(rows), list(range(rows)), rows).isnan().any())


def _same_beside_others(
    runner: Runner, cache: Cache, length: int, following: Sequence[int], alone: torch.Tensor, rows: int
) -> bool:
    """The first row's bits with `rows - 1` more rows, of two kinds, beside it."""
    if rows > runner.chunk:
        return True
    others = [(token + 1) % runner.vocabulary for token in following[1:rows]]
    for beside in (list(following[1:rows]), others):
        cache.truncate(length)
        if not torch.equal(runner.step(cache, [following[0], *beside], rows)[0], alone):
            return False
    return True


def _prefilled(runner: Runner, prompt: Sequence[int], chunk: int) -> Cache:
    cache = runner.new_cache(len(prompt) + max(_WIDTHS))
    for start in range(0, len(prompt), chunk):
        runner.step(cache, prompt[start : start + chunk], 0)
    return cache
