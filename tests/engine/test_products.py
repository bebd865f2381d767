"""Products against plain arithmetic, and their rows against one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from copilotd.engine import products
from copilotd.engine.products import (
    NF4_LEVELS,
    Dense,
    Int8,
    Int8WeightOnly,
    Nf4,
    Product,
    int8_products_are_exact,
    nf4_is_fused,
    quantise_nf4,
    quantise_rows,
)

needs_nf4 = pytest.mark.skipif(not nf4_is_fused(), reason="no fused NF4 kernel on this processor")
needs_exact = pytest.mark.skipif(
    not int8_products_are_exact(), reason="no exact int8 product on this processor"
)

FREE: dict[str, Callable[[torch.Tensor], Product]] = {
    "nf4": Nf4,
    "int8": lambda weight: Int8(*quantise_rows(weight)),
    "int8 with residual": lambda weight: Int8(*quantise_rows(weight), residual=True),
    "int8 weights only": lambda weight: Int8WeightOnly(*quantise_rows(weight)),
}


def weight(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs * inputs))


def activations(rows: int, inputs: int) -> torch.Tensor:
    """With outliers, as in real models."""
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
    x[:, ::17] *= 20
    return x


@needs_nf4
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 128), (96, 64), (50, 48), (288, 1536)])
def test_nf4_is_the_product_with_the_dequantised_weight(outputs: int, inputs: int) -> None:
    held = weight(outputs, inputs)
    padded = torch.nn.functional.pad(held, (0, -inputs % 64))
    level, absmax = quantise_nf4(padded)
    scale = absmax.to(torch.bfloat16).float().repeat_interleave(64, dim=1)
    dequantised = (NF4_LEVELS[level.long()] * scale)[:, :inputs]
    x = activations(3, inputs).to(torch.bfloat16).float()
    expected = x @ dequantised.T
    error = (Nf4(held)(x).float() - expected).norm() / expected.norm()
    assert error < 0.01
    assert (dequantised - held).abs().max() < 0.16 * absmax.max()  # half the widest gap between levels


@needs_exact
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 128), (50, 48), (288, 1536)])
def test_int8_is_the_exact_product_of_the_levels(outputs: int, inputs: int) -> None:
    levels, scale = quantise_rows(weight(outputs, inputs))
    x = activations(5, inputs)
    step = x.abs().amax(dim=1, keepdim=True) / 127
    tokens = (x / step).add(128.5).to(torch.uint8).double() - 128
    expected = tokens @ levels.double().T * scale.double() * step.double()
    torch.testing.assert_close(Int8(levels, scale)(x).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inputs", [1, 8, 17, 100, 104, 896])
def test_int8_weights_are_read_no_further_than_they_go(inputs: int) -> None:
    """torch's kernel reads whole vectors: of other lengths it would give anything, or end the process."""
    levels = torch.randint(-8, 9, (33, inputs), generator=torch.Generator().manual_seed(inputs))
    x = torch.randint(-2, 3, (5, inputs), generator=torch.Generator().manual_seed(inputs + 1)).float()
    scale = 2.0 ** (torch.arange(33) % 9 - 4)
    expected = (x @ levels.T.float() * scale).to(torch.bfloat16)
    got = Int8WeightOnly(levels.to(torch.int8), scale)(x)
    assert got.shape == (5, 33)
    assert torch.equal(got, expected)


@needs_exact
def test_the_residual_makes_activations_nearly_exact() -> None:
    levels, scale = quantise_rows(weight(256, 512))
    x = activations(4, 512)
    expected = x.double() @ (levels.double() * scale.double()[:, None]).T

    def error(residual: bool) -> float:
        return float((Int8(levels, scale, residual)(x).double() - expected).norm() / expected.norm())

    assert error(residual=True) < 1e-4
    assert error(residual=False) > 50 * error(residual=True)


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize(("outputs", "inputs"), [(160, 64), (288, 896), (50, 48)])
def test_rows_are_free_of_number_and_content_of_the_others(kind: str, outputs: int, inputs: int) -> None:
    if kind == "nf4" and not nf4_is_fused():
        pytest.skip("no fused NF4 kernel on this processor")
    product = FREE[kind](weight(outputs, inputs))
    assert product.rows_free
    row = activations(1, inputs)
    alone = product(row)
    for rows in (2, 3, 4, 5, 7, 8, 9, 16, 33, 64, 128):
        for position in (0, rows // 2, rows - 1):
            x = 100 * torch.randn(rows, inputs)
            x[position] = row[0]
            assert torch.equal(product(x)[position], alone[0]), (rows, position)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_dense_rows_are_alike_at_one_number_of_rows(kind: torch.dtype) -> None:
    product = Dense(weight(160, 896).to(kind))
    assert not product.rows_free
    row = activations(1, 896)
    for rows in (8, 9, 16):
        results = []
        for position in range(rows):
            x = torch.randn(rows, 896)
            x[position] = row[0]
            results.append(product(x)[position])
        assert all(torch.equal(result, results[0]) for result in results)


def test_zeros_and_extremes_stay_finite() -> None:
    for make in [FREE["int8"], FREE["int8 with residual"]]:
        product = make(torch.zeros(32, 64))
        assert (product(torch.zeros(2, 64)) == 0).all()
        assert make(weight(32, 64))(torch.full((1, 64), 1e30)).isfinite().all()


def test_nf4_is_refused_where_the_kernel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_nf4_routine", lambda: None)
    assert not nf4_is_fused()
    with pytest.raises(RuntimeError, match="no fused NF4 kernel"):
        Nf4(weight(32, 64))


def test_a_missing_library_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for found in (None, type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})()):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        products._nf4_routine.cache_clear()
        assert not nf4_is_fused()
    monkeypatch.undo()
    products._nf4_routine.cache_clear()
