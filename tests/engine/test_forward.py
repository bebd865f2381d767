"""Row-invariant steps: a position's logit bits depend on the ids before it, on nothing beside it."""

from __future__ import annotations

import pytest
import torch

from copilotd.engine.forward import _gated
from copilotd.engine.runner import Cache, Runner
from copilotd.engine.self_test import Identity, self_test
from tests.support.kernels import holds_here
from tests.support.tiny_models import FREE, HOLDS, OutlierInt8, runner

IDS = [(11 * i * i + 3 * i) % 256 for i in range(340)]


def prefilled(model: Runner, ids: list[int], chunk: int) -> Cache:
    cache = model.new_cache(400)
    for start in range(0, len(ids), chunk):
        model.step(cache, ids[start : start + chunk], 0)
    return cache


@pytest.mark.parametrize("hold", FREE)
def test_rows_are_bit_equal_for_every_number_of_rows(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    assert model.rows_free
    length = 250  # steps below cross into the second block of keys
    cache = prefilled(model, IDS[:length], 64)
    one_by_one = torch.cat([model.step(cache, [token], 1) for token in IDS[length : length + 64]])
    for rows in (*range(1, 18), 31, 32, 33, 64):
        cache.truncate(length)
        assert torch.equal(model.step(cache, IDS[length : length + rows], rows), one_by_one[:rows]), rows


@pytest.mark.parametrize("hold", HOLDS)
def test_neighbours_do_not_matter(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = prefilled(model, IDS[:30], model.chunk)
    alone = model.step(cache, IDS[30:33], 3)
    for rows in range(3, model.chunk + 1 if not model.rows_free else 12):
        for other in (0, 77, 255):
            cache.truncate(30)
            step = model.step(cache, [*IDS[30:33], *[other] * (rows - 3)], rows)
            assert torch.equal(step[:3], alone), (rows, other)
    cache.truncate(30)
    assert not torch.equal(model.step(cache, [IDS[30], (IDS[31] + 1) % 256, IDS[32]], 3)[1:], alone[1:])


@pytest.mark.parametrize("hold", FREE)
def test_warm_is_cold_for_every_chunking(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold], chunk=128)
    expected = model.step(prefilled(model, IDS[:-1], 128), IDS[-1:], 1)
    for chunk in (1, 2, 7, 64, 100):
        assert torch.equal(model.step(prefilled(model, IDS[:-1], chunk), IDS[-1:], 1), expected), chunk


@pytest.mark.parametrize("hold", HOLDS)
def test_a_step_after_a_cut_is_as_if_nothing_had_been_there(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    cache = prefilled(model, IDS[:20], model.chunk)
    expected = model.step(cache, IDS[20:22], 2)
    cache.truncate(20)
    model.step(cache, [5] * min(9, model.chunk), 1)
    cache.truncate(20)
    assert torch.equal(model.step(cache, IDS[20:22], 2), expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("hold", FREE)
def test_wide_steps_are_the_same_with_any_number_of_threads(hold: str, threads: int) -> None:
    """Several threads cut long tensors anywhere, also where a vector's worth of elements is not full."""
    holds_here(hold)
    many = torch.randn(40, 301, 2 * 150, generator=torch.Generator().manual_seed(0))
    one_by_one = [torch.cat([_gated(row.clone()) for row in gate_up.split(1)]) for gate_up in many]
    model = runner(HOLDS[hold], chunk=300)
    expected = model.step(prefilled(model, IDS[:300], 1), IDS[300:301], 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert all(
            torch.equal(_gated(wide.clone()), rows) for wide, rows in zip(many, one_by_one, strict=True)
        )
        assert torch.equal(model.step(prefilled(model, IDS[:300], 300), IDS[300:301], 1), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("hold", ["int8-weights", "compiled-int8", "compiled-nf4"])
def test_logits_are_cut_to_the_real_vocabulary(hold: str) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold], vocabulary=200, rows=256)
    cache = model.new_cache(8)
    logits = model.step(cache, [1, 2, 3], 2)
    assert logits.shape == (2, 200)
    assert logits.dtype == torch.float32
    assert model.step(cache, [1], 0).shape == (0, 200)


@pytest.mark.parametrize("hold", ["int8-weights", "fp32", "compiled-int8"])
@pytest.mark.parametrize(("count", "rows"), [(0, 0), (1, 2), (65, 1), (2, -1)])
def test_impossible_steps_are_refused(hold: str, count: int, rows: int) -> None:
    holds_here(hold)
    model = runner(HOLDS[hold])
    with pytest.raises(ValueError, match="a step of"):
        model.step(model.new_cache(100), [1] * count, rows)


# ---- the self-test -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", HOLDS)
def test_the_self_test_passes(hold: str) -> None:
    holds_here(hold)
    assert self_test(runner(HOLDS[hold])) == Identity(speculation=True, cache=True)


def test_the_self_test_sees_rows_that_are_not_free() -> None:
    """LLM.int8's default threshold, and a fixed shape left out."""
    assert not self_test(runner(lambda weight: OutlierInt8(weight, 6.0))).speculation

    class Claims:
        """Wrong by the first bit that depends on the number of rows."""

        rows_free = True

        def __init__(self, weight: torch.Tensor) -> None:
            self._weight = weight
            self.nbytes = weight.nbytes

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self._weight.T * (1 + len(x) * 1e-6)

    assert self_test(runner(Claims)) == Identity(speculation=False, cache=False)
