"""Whole steps by the compiled kernels: near torch's own, and to the bit the same however they are cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from copilotd.engine.forward import Decoder, DecoderRunner, Embedding
from copilotd.engine.native.runner import HalfCache, NativeRunner, computes
from copilotd.engine.products import quantise_rows
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.self_test import gives_numbers
from tests.support.kernels import holds_here, threads
from tests.support.tiny_models import HOLDS, decoder

VOCABULARY = 200
"""of a head of 256"""
IDS = [(11 * i * i + 3 * i) % VOCABULARY for i in range(700)]
BLOCK = 256
"""keys that attention reduces by themselves"""

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": {"windows": (None, 8)},
    "long windows": {"windows": (300, 256, 257)},
    "no whole blocks": {"hidden": 80, "intermediate": 208, "heads": 5, "key_heads": 1},
    "a key head for each": {"heads": 3, "key_heads": 3, "size": 48},
    "seven heads for each": {"heads": 14, "key_heads": 2, "size": 64, "windows": (None, 100)},
    "large heads": {"heads": 2, "key_heads": 1, "size": 256},
}


@pytest.fixture(autouse=True)
def compiled() -> None:
    holds_here("compiled")


def model(kind: str = "compiled-int8", shape: str = "plain", *, gain: float = 12.0) -> Decoder:
    return decoder(HOLDS[kind], vocabulary=256, seed=0, gain=gain, **SHAPES[shape])


def prefilled(runner: Runner, ids: list[int], *, chunk: int = 64, capacity: int = 700) -> Any:
    cache = runner.new_cache(capacity)
    for start in range(0, len(ids), chunk):
        runner.step(cache, ids[start : start + chunk], 0)
    return cache


def logits(runner: Runner, ids: list[int], chunk: int) -> torch.Tensor:
    """Of every position."""
    cache = runner.new_cache(len(ids))
    chunks = [ids[start : start + chunk] for start in range(0, len(ids), chunk)]
    return torch.cat([runner.step(cache, chunk, len(chunk)) for chunk in chunks])


# ---- near --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["compiled-int8", "compiled-nf4"])
def test_logits_are_near_those_of_torch(kind: str, shape: str) -> None:
    """On the very same products. Halves in the cache, and the order of sums, now and then make another level of
    an activation."""
    held = model(kind, shape, gain=4.0)
    expected = logits(DecoderRunner(held, VOCABULARY, fixed_rows=9), IDS, 64)
    found = logits(NativeRunner(held, VOCABULARY), IDS, 64)
    apart = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert apart.max() < 0.05
    assert apart.median() < 0.02


def test_biases_are_left_out_and_tables_may_be_int8() -> None:
    held = model(gain=4.0)
    layers = tuple(replace(layer, qkv_bias=None) for layer in held.layers)
    held = replace(held, layers=layers, embedding=Embedding(*quantise_rows(held.embedding.table)))
    expected = logits(DecoderRunner(held, VOCABULARY, fixed_rows=9), IDS[:100], 64)
    found = logits(NativeRunner(held, VOCABULARY), IDS[:100], 64)
    assert torch.cosine_similarity(found, expected, dim=1).min() > 0.998


@pytest.mark.parametrize("part", ["attention_norm", "qkv_bias", "mlp_norm", "norm", "keys", "values"])
def test_a_model_that_gives_no_numbers_is_known_by_its_logits(part: str) -> None:
    held = model()
    damaged = {
        "keys": ("qkv_bias", 4 * 16),
        "values": ("qkv_bias", 6 * 16),
    }.get(part, (part, 0))
    vector = getattr(held if part == "norm" else held.layers[0], damaged[0]).clone()
    vector[damaged[1]] = float("nan")
    if part == "norm":
        held = replace(held, norm=vector)
    else:
        held = replace(held, layers=(replace(held.layers[0], **{damaged[0]: vector}), held.layers[1]))
    assert gives_numbers(NativeRunner(model(), VOCABULARY))
    assert not gives_numbers(NativeRunner(held, VOCABULARY))


# ---- to the bit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_every_position_has_its_bits_however_the_ids_are_cut(shape: str) -> None:
    """Through three blocks of keys, one by one and in chunks that end around their borders."""
    runner = NativeRunner(model("compiled-int8", shape), VOCABULARY, chunk=300)
    ids = IDS[:530]
    with threads(1):
        expected = logits(runner, ids, 1)
    for number in (1, 2, 3):
        with threads(number):
            for chunk in (2, 3, 5, 16, 64, 255, 256, 257):
                assert torch.equal(logits(runner, ids, chunk), expected), (number, chunk)


@pytest.mark.parametrize("asked", range(6))
def test_the_last_rows_are_given(asked: int) -> None:
    runner = NativeRunner(model(), VOCABULARY)
    expected = logits(runner, IDS[:25], 5)
    cache = prefilled(runner, IDS[:20])
    assert torch.equal(runner.step(cache, IDS[20:25], asked), expected[25 - asked :])


@pytest.mark.parametrize("start", [254, 255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("shape", ["plain", "windows", "long windows"])
def test_neighbours_at_the_borders_of_blocks(shape: str, start: int) -> None:
    """Neither how many ids follow, nor which, changes those before."""
    runner = NativeRunner(model("compiled-nf4", shape), VOCABULARY)
    cache = prefilled(runner, IDS[:start])
    expected = torch.cat([runner.step(cache, [token], 1) for token in IDS[start : start + 20]])
    for rows in range(1, 21):
        for other in (IDS[start + 5], 0, VOCABULARY - 1):
            same = min(rows, 4)
            cache.truncate(start)
            ids = [*IDS[start : start + same], *[other] * (rows - same)]
            assert torch.equal(runner.step(cache, ids, rows)[:same], expected[:same]), (rows, other)


@pytest.mark.parametrize("start", [3, 16, 250, 256])
@pytest.mark.parametrize("shape", ["plain", "windows"])
def test_what_stands_behind_the_last_row_does_not_matter(shape: str, start: int) -> None:
    """Not even the largest halves there are, in the same group of keys, and in the blocks after it."""
    runner = NativeRunner(model(shape=shape), VOCABULARY)
    cache = prefilled(runner, IDS[:start])
    expected = runner.step(cache, IDS[start : start + 2], 2)
    cache.truncate(start)
    keys = cache._keys.transpose(2, 3).reshape(len(cache._keys), -1, cache._keys.shape[2])
    keys[:, start:], cache._values[:, start:] = 65504.0, -65504.0
    cache._keys.copy_(keys.view(len(keys), -1, 16, keys.shape[2]).transpose(2, 3))
    assert torch.equal(runner.step(cache, IDS[start : start + 2], 2), expected)


def test_the_number_of_threads_may_change_from_step_to_step() -> None:
    runner = NativeRunner(model(shape="seven heads for each"), VOCABULARY)
    with threads(1):
        cache = prefilled(runner, IDS[:300])
        expected = torch.cat([runner.step(cache, [token], 1) for token in IDS[300:360]])
    cache.truncate(300)
    found = []
    for at, token in enumerate(IDS[300:360]):
        with threads(1 + at % 4):
            found.append(runner.step(cache, [token], 1))
    assert torch.equal(torch.cat(found), expected)
    for number in (4, 2, 3, 1):
        with threads(number):
            cache.truncate(300)
            assert torch.equal(runner.step(cache, IDS[300:360], 60), expected), number


def test_two_models_take_turns() -> None:
    """As target and draft do: they share the threads, not the scratch."""
    target, draft = (
        NativeRunner(model(kind, shape), VOCABULARY)
        for kind, shape in (("compiled-int8", "seven heads for each"), ("compiled-nf4", "plain"))
    )
    alone = [logits(runner, IDS[:40], 8) for runner in (target, draft)]
    caches = [runner.new_cache(40) for runner in (target, draft)]
    with threads(2):
        for start in range(0, 40, 8):
            for runner, cache, expected in zip((target, draft), caches, alone, strict=True):
                found = runner.step(cache, IDS[start : start + 8], 8)
                assert torch.equal(found, expected[start : start + 8])


# ---- caches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 15, 16, 17, 255, 256, 257])
def test_a_cache_becomes_another(length: int) -> None:
    """Up to a length inside a group of keys, also where one has more room than the other."""
    runner = NativeRunner(model(), VOCABULARY)
    source = prefilled(runner, IDS[:300])
    expected = runner.step(prefilled(runner, IDS[:length]), [7, 8, 9], 3)
    for capacity in (300, 700, 900):
        cache = prefilled(runner, IDS[100:120], capacity=capacity)
        assert cache.become(source, length)
        assert cache.ids == IDS[:length]
        assert torch.equal(runner.step(cache, [7, 8, 9], 3), expected)
    assert source.ids == IDS[:300]
    assert torch.equal(runner.step(source, [5], 1), runner.step(prefilled(runner, IDS[:300]), [5], 1))


def test_caches_of_another_runner_are_refused() -> None:
    held = model()
    of_torch = DecoderRunner(held, VOCABULARY, fixed_rows=9)
    with pytest.raises(TypeError, match="another runner's"):
        NativeRunner(held, VOCABULARY).step(of_torch.new_cache(8), [1], 1)
    with pytest.raises(TypeError, match="another runner's"):
        of_torch.step(NativeRunner(held, VOCABULARY).new_cache(8), [1], 1)


def test_positions_end_where_the_model_says() -> None:
    held = model()
    runner = NativeRunner(replace(held, shape=replace(held.shape, max_tokens=20)), VOCABULARY)
    cache = prefilled(runner, IDS[:18])
    with pytest.raises(ValueError, match="no room"):
        runner.step(cache, [1, 2, 3], 0)
    assert len(cache.ids) == 18
    expected = NativeRunner(held, VOCABULARY)
    whole = prefilled(expected, IDS[:18])
    assert torch.equal(runner.step(cache, [1, 2], 2), expected.step(whole, [1, 2], 2))


def test_an_unknown_id_is_refused_before_anything_is_written() -> None:
    runner = NativeRunner(model(), VOCABULARY)
    cache = prefilled(runner, IDS[:10])
    with pytest.raises(IndexError):
        runner.step(cache, [1, 256], 1)
    assert cache.ids == IDS[:10]


def test_the_vocabulary_may_be_cut_later() -> None:
    """As it is to that of a pair."""
    runner = NativeRunner(model(), 256)
    cache: Cache = runner.new_cache(8)
    whole = runner.step(cache, [1, 2, 3], 3)
    for vocabulary in (200, 17, 1):
        runner.vocabulary = vocabulary
        cache.truncate(0)
        assert torch.equal(runner.step(cache, [1, 2, 3], 3), whole[:, :vocabulary])


# ---- which models ------------------------------------------------------------------------------------------


def test_what_the_kernels_know() -> None:
    held = model()
    assert computes(held)
    assert not computes(replace(held, head=HOLDS["fp32"](torch.ones(256, 64))))
    mixed = replace(held.layers[1], down=HOLDS["fp32"](torch.ones(64, 128)))
    assert not computes(replace(held, layers=(held.layers[0], mixed)))
    for name, size in (("hidden", 72), ("intermediate", 100), ("head_size", 24)):
        assert not computes(replace(held, shape=replace(held.shape, **{name: size}))), name
    with pytest.raises(TypeError, match="not compiled"):
        NativeRunner(decoder(HOLDS["fp32"], vocabulary=256, seed=0), VOCABULARY)


def test_a_cache_takes_half_of_torchs() -> None:
    held = model()
    native, of_torch = NativeRunner(held, VOCABULARY), DecoderRunner(held, VOCABULARY, fixed_rows=9)
    assert isinstance(native.new_cache(1), HalfCache)
    for capacity in (1, 256, 257, 1000):
        assert 2 * native.cache_bytes(capacity) == of_torch.cache_bytes(capacity)
