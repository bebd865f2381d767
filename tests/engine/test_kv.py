"""The audit of the cache: whatever was done to it, its rows are those of a fresh run."""

from __future__ import annotations

import random

import pytest
import torch

from copilotd.engine.forward import DecoderRunner
from copilotd.engine.kv import KvCache
from copilotd.engine.native.runner import HalfCache, NativeRunner
from tests.support.kernels import holds_here
from tests.support.tiny_models import HOLDS, runner

OURS = ("int8-weights", "fp32", "compiled-int8")
"""every kind of cache, and of step"""


def rows_of(cache: KvCache | HalfCache) -> torch.Tensor:
    """[keys and values, layers and key heads, rows, head size]"""
    keys = cache._keys.transpose(2, 3) if isinstance(cache, HalfCache) else cache._keys.mT
    values = cache._values.flatten(0, -3)
    return torch.stack((keys.reshape(values.shape), values))[:, :, : len(cache.ids)]


def fresh(model: DecoderRunner | NativeRunner, ids: list[int]) -> KvCache | HalfCache:
    cache = model.new_cache(len(ids))
    for start in range(0, len(ids), model.chunk):
        model.step(cache, ids[start : start + model.chunk], 0)
    return cache


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("windows", [(None, None), (None, 8)])
def test_any_sequence_of_appends_and_cuts_leaves_the_rows_of_a_fresh_run(
    hold: str, windows: tuple[int | None, ...]
) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold], windows=windows)
    for seed in range(6):
        rng = random.Random(seed)
        cache = model.new_cache(600)
        for _ in range(40):
            act = rng.random()
            if act < 0.65:  # decode, verify, or a chunk of a prompt
                count = min(
                    rng.choice((1, 1, 2, 5, 9, model.chunk)), model.chunk, cache.capacity - len(cache.ids)
                )
                if count:
                    model.step(cache, [rng.randrange(256) for _ in range(count)], rng.randrange(count + 1))
            elif act < 0.9:  # a rejected draft
                cache.truncate(max(0, len(cache.ids) - rng.randrange(6)))
            else:  # a jump
                cache.truncate(rng.randrange(len(cache.ids) + 1))
        expected = rows_of(fresh(model, cache.ids))
        if model.rows_free:
            assert torch.equal(rows_of(cache), expected)
        else:
            torch.testing.assert_close(rows_of(cache), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("hold", OURS)
def test_the_audit_can_fail(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = model.new_cache(32)
    for start in range(0, 20, 5):
        model.step(cache, list(range(start, start + 5)), 0)
    del cache.ids[10]  # an off-by-one: the rows no longer belong to the ids
    assert not torch.equal(rows_of(cache), rows_of(fresh(model, cache.ids)))


@pytest.mark.parametrize("hold", OURS)
def test_a_cut_costs_nothing_and_cannot_lengthen(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = model.new_cache(32)
    model.step(cache, [1, 2, 3, 4], 0)
    address = cache._keys.data_ptr()
    cache.truncate(2)
    assert cache.ids == [1, 2]
    assert cache._keys.data_ptr() == address
    for length in (3, -1):
        with pytest.raises(ValueError, match="cannot cut"):
            cache.truncate(length)


@pytest.mark.parametrize("hold", OURS)
def test_no_room_is_said_before_anything_is_written(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = model.new_cache(10)
    model.step(cache, [1] * 8, 0)
    with pytest.raises(ValueError, match="no room"):
        model.step(cache, [1, 2, 3], 1)
    assert len(cache.ids) == 8
    assert model.step(cache, [1, 2], 1).shape == (1, model.vocabulary)


@pytest.mark.parametrize("hold", OURS)
@pytest.mark.parametrize("capacity", [1, 255, 256, 1000])
def test_a_cache_takes_what_was_said(hold: str, capacity: int) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = model.new_cache(capacity)
    assert model.cache_bytes(capacity) == cache._keys.nbytes + cache._values.nbytes


@pytest.mark.parametrize("windows", [(None, None), (None, 8)])
@pytest.mark.parametrize("hold", ["int8-weights", "compiled-int8"])
def test_rows_taken_over_from_another_cache_are_those_of_a_fresh_run(
    hold: str, windows: tuple[int | None, ...]
) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold], windows=windows)
    ids = list(range(60))
    source, cache = fresh(model, ids), model.new_cache(64)
    model.step(cache, [200, 201, 202], 0)
    assert cache.become(source, 50)
    model.step(cache, [99, 98], 0)
    assert torch.equal(rows_of(cache), rows_of(fresh(model, [*ids[:50], 99, 98])))
    assert torch.equal(rows_of(source), rows_of(fresh(model, ids)))
