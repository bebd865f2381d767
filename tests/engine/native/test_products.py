"""The compiled products: exact where rounding is, near otherwise, and a row's bits its own."""

from __future__ import annotations

import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from copilotd.engine.native.library import INT8, NF4
from copilotd.engine.native.products import (
    BLOCK,
    LEVELS,
    STEPS,
    TILE,
    Compiled,
    exact,
    pack_int8,
    pack_nf4,
)
from copilotd.engine.products import NF4_LEVELS, quantise_nf4, quantise_rows
from tests.support.kernels import holds_here, threads
from tests.support.tiny_models import HOLDS

KINDS = ("compiled-int8", "compiled-nf4")
SHAPES = [(16, 64), (64, 128), (50, 48), (1, 1), (17, 65), (33, 300), (288, 896)]
"""(outputs, inputs): of whole tiles and blocks, and not"""
FURTHEST = 127


@pytest.fixture(autouse=True)
def compiled() -> None:
    holds_here("compiled")


def generator(*words: int) -> torch.Generator:
    return torch.Generator().manual_seed(sum(word * 1009**at for at, word in enumerate(words)))


def weight(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=generator(outputs, inputs))


def activations(rows: int, inputs: int) -> torch.Tensor:
    """With outliers, as in real models."""
    x = torch.randn(rows, inputs, generator=generator(rows, inputs, 1))
    x[:, ::17] *= 20
    return x


def blocks_of(x: torch.Tensor) -> torch.Tensor:
    """[rows, blocks, 64], padded with zeros"""
    return torch.nn.functional.pad(x, (0, -x.shape[1] % BLOCK)).view(len(x), -1, BLOCK)


# ---- exact -------------------------------------------------------------------------------------------------


def whole_numbers(rows: int, inputs: int) -> torch.Tensor:
    """Activations that are their own levels: each block's greatest is 127."""
    x = torch.randint(-FURTHEST, FURTHEST + 1, (rows, inputs), generator=generator(rows, inputs)).float()
    x[:, ::BLOCK] = FURTHEST
    x[1::2, ::BLOCK] = -FURTHEST
    return x


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_int8_is_the_product_of_whole_numbers(outputs: int, inputs: int) -> None:
    """By row a scale that is a power of two, so that nothing is rounded."""
    levels = torch.randint(-FURTHEST, FURTHEST + 1, (outputs, inputs), generator=generator(outputs, inputs))
    scale = 2.0 ** (torch.arange(outputs) % 9 - 4)
    x = whole_numbers(5, inputs)
    product = Compiled(*pack_int8(levels.to(torch.int8), scale), outputs, inputs)
    expected = x.double() @ levels.double().T * scale.double()
    assert torch.equal(product(x).double(), expected)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_nf4_is_the_product_of_whole_numbers(outputs: int, inputs: int) -> None:
    """Activations are multiples of 63, weights of 1/63, blocks' maxima powers of two."""
    chosen = torch.randint(16, (outputs, inputs), generator=generator(outputs, inputs))
    chosen[:, ::BLOCK] = 15
    chosen[::2, ::BLOCK] = 0  # the least level, -1, is a maximum too
    steps = LEVELS[chosen]
    blocks = -(-inputs // BLOCK)
    most = 2.0 ** torch.randint(-3, 4, (outputs, blocks), generator=generator(outputs))
    scale = most.repeat_interleave(BLOCK, dim=1)[:, :inputs]
    x = whole_numbers(5, inputs)
    product = Compiled(pack_nf4(steps * scale / STEPS), None, outputs, inputs)
    assert torch.equal(product(x * STEPS).double(), x.double() @ (steps * scale).double().T)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_x", [1, -1, 0])
@pytest.mark.parametrize("of_weight", [1, -1, 0])
def test_nothing_saturates(kind: str, of_weight: int, of_x: int) -> None:
    """127 everywhere, of one sign or by turns: two such products do not fit into 15 bits, and a block's sum
    not into 16."""
    outputs, inputs = 32, 512

    def furthest(sign: int, rows: int) -> torch.Tensor:
        signs = torch.tensor([1.0, 1.0, -1.0]).repeat(inputs)[:inputs] if sign == 0 else torch.tensor(sign)
        return torch.full((rows, inputs), float(FURTHEST)) * signs

    of = furthest(of_weight, outputs)
    x = furthest(of_x, 4)
    if kind == "compiled-int8":
        product, greatest = Compiled(*pack_int8(of.to(torch.int8), torch.ones(outputs)), outputs, inputs), of
    else:
        product, greatest = Compiled(pack_nf4(of.sign()), None, outputs, inputs), of.sign() * STEPS
        x = x * STEPS
    expected = x.double() @ greatest.double().T / (1 if kind == "compiled-int8" else STEPS)
    assert torch.equal(product(x).double(), expected)


def test_kernels_that_saturate_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pairs of products are added in 16 bits."""
    assert exact()
    real = Compiled.__call__
    for kind, furthest in ((INT8, 127 * 127), (NF4, 127 * STEPS)):

        def saturating(
            held: Compiled, x: torch.Tensor, kind: int = kind, most: int = 128 * furthest
        ) -> torch.Tensor:
            out = real(held, x)
            return out.clamp(-most, most - 1) if held.structure.kind == kind else out

        monkeypatch.setattr(Compiled, "__call__", saturating)
        assert not exact.__wrapped__(), kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [-90, -20, 20, 60])
def test_twice_the_activations_is_twice_the_result(kind: str, power: int) -> None:
    product = HOLDS[kind](weight(48, 200))
    x = activations(3, 200)
    assert torch.equal(product(x * 2.0**power), product(x) * 2.0**power)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [136, 199, 201])
def test_activations_of_another_width_are_refused(kind: str, width: int) -> None:
    """What lies behind them would be read."""
    with pytest.raises(ValueError, match=rf"\b{width} columns, the matrix 200 inputs"):
        HOLDS[kind](weight(48, 200))(activations(2, width))


@pytest.mark.parametrize("kind", KINDS)
def test_zeros(kind: str) -> None:
    product = HOLDS[kind](weight(48, 200))
    assert product(torch.zeros(0, 200)).shape == (0, 48)
    x = activations(3, 200)
    alone = product(x[:1])
    x[1:] = 0.0
    x[2] = 1e-38  # so small that its inverse would be infinite
    found = product(x)
    assert torch.equal(found[:1], alone)
    assert (found[1] == 0.0).all()
    assert found[2].abs().max() < 1e-30
    x[2] = 1e30
    assert product(x).isfinite().all()
    assert (HOLDS[kind](torch.zeros(48, 200))(activations(3, 200)) == 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", [0, 5, 62, 63, 64, 199])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays_none(kind: str, position: int, value: float) -> None:
    """Damaged weights are found by what comes out: levels have no way to say NaN, their scale has."""
    x = activations(3, 200)
    product = HOLDS[kind](weight(48, 200))
    others = product(x)
    x[1, position] = value
    found = product(x)
    assert not found[1].isfinite().any()
    assert torch.equal(found[[0, 2]], others[[0, 2]])


# ---- near --------------------------------------------------------------------------------------------------


def rounded(x: torch.Tensor) -> torch.Tensor:
    """What the kernels make of activations: int8 by blocks of 64."""
    blocks = blocks_of(x)
    most = blocks.abs().amax(dim=2, keepdim=True)
    levels = (blocks * (FURTHEST / most)).round()
    return (levels.double() * (most / FURTHEST).double()).flatten(1)[:, : x.shape[1]]


def nearest(held: torch.Tensor) -> torch.Tensor:
    """Each weight at the nearest of the levels of its block, by looking at all of them."""
    blocks = blocks_of(held)
    most = blocks.abs().amax(dim=2, keepdim=True).half().float()
    levels = LEVELS / STEPS
    chosen = (blocks / most)[..., None].sub(levels).abs().argmin(dim=-1)
    return (levels[chosen].double() * most.double()).flatten(1)[:, : held.shape[1]]


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_product_of_what_both_are_rounded_to(kind: str, outputs: int, inputs: int) -> None:
    held, x = weight(outputs, inputs), activations(6, inputs)
    if kind == "compiled-int8":
        levels, scale = quantise_rows(held)
        of = levels.double() * scale.double()[:, None]
    else:
        of = nearest(held)
    expected = rounded(x) @ of.T
    size = rounded(x).abs() @ of.abs().T
    assert ((HOLDS[kind](held)(x) - expected).abs() <= 1e-6 * size).all()


@pytest.mark.parametrize(("kind", "most"), [("compiled-int8", 0.012), ("compiled-nf4", 0.1)])
def test_it_is_near_the_product(kind: str, most: float) -> None:
    held, x = weight(320, 896), torch.randn(16, 896, generator=generator(3))
    expected = x @ held.T
    assert (HOLDS[kind](held)(x) - expected).norm() / expected.norm() < most


def test_the_levels_are_those_of_nf4() -> None:
    """To 1/126; and as near to the weights as the exact ones."""
    assert (LEVELS / STEPS - NF4_LEVELS).abs().max() <= 0.5 / STEPS + 1e-6
    held = weight(64, 512)
    level, absmax = quantise_nf4(held)
    exact = NF4_LEVELS[level.long()] * absmax.repeat_interleave(BLOCK, dim=1)
    assert (nearest(held) - held).norm() < 1.005 * (exact - held).norm()


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_what_it_takes(outputs: int, inputs: int) -> None:
    whole = (-(-outputs // TILE) * TILE, -(-inputs // BLOCK) * BLOCK)
    weights = whole[0] * whole[1]
    assert HOLDS["compiled-int8"](weight(outputs, inputs)).nbytes == weights + 4 * whole[0]
    assert HOLDS["compiled-nf4"](weight(outputs, inputs)).nbytes == weights // 2 + 2 * weights // BLOCK


# ---- a row's bits are its own ------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "inputs"), [(33, 300), (288, 896), (2000, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_free(kind: str, outputs: int, inputs: int) -> None:
    """Of their number, of what stands beside them and of the number of threads."""
    product = HOLDS[kind](weight(outputs, inputs))
    assert product.rows_free
    x = activations(101, inputs)
    with threads(1):
        one_by_one = torch.cat([product(row) for row in x.split(1)])
    for number in (1, 2, 3):
        with threads(number):
            for rows in (*range(1, 21), 31, 33, 64, 65, 95, 101):
                assert torch.equal(product(x[:rows]), one_by_one[:rows]), (number, rows)
                beside = 100 * torch.randn(rows, inputs)
                for position in {0, rows // 2, rows - 1}:
                    beside[position] = x[0]
                    assert torch.equal(product(beside)[position], one_by_one[0]), (number, rows, position)


def test_callers_at_the_same_time_take_turns() -> None:
    product = HOLDS["compiled-int8"](weight(288, 896))
    x = activations(5, 896)
    with threads(2):
        expected = product(x)
        with ThreadPoolExecutor(4) as pool:
            for result in pool.map(lambda _: product(x), range(200)):
                assert torch.equal(result, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_helpers_that_slept_wake_up_and_more_are_hired(kind: str) -> None:
    product, x = HOLDS[kind](weight(4000, 256)), activations(4, 256)
    with threads(1):
        expected = product(x)
    for number in (2, 5, 1, 3, 70, 2):
        with threads(number):
            for _ in range(30):
                assert torch.equal(product(x), expected), number
        time.sleep(0.02)


def test_a_forked_process_has_helpers_of_its_own() -> None:
    product, x = HOLDS["compiled-int8"](weight(4000, 256)), activations(4, 256)
    with threads(3):
        expected = product(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that threads and fork are a risk
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # it may hang
            os._exit(0 if all(torch.equal(product(x), expected) for _ in range(50)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
