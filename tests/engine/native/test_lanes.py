"""What the kernels compute between the products, lane by lane."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest
import torch

from copilotd.engine.native import build
from tests.support.kernels import holds_here

PROGRAM = """
#include "lanes.h"

void exps(const float *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) lanes_store(to + i, lanes_exp(lanes_load(from + i)));
}
void halves(const float *from, uint16_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) lanes_store_half(to + i, lanes_load(from + i));
}
void bytes(const float *from, int8_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) lanes_store_int8(to + i, lanes_load(from + i));
}
float sum(const float *from) { return lanes_sum(lanes_load(from)); }
float greatest(const float *from) { return lanes_greatest(lanes_load(from)); }
"""


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    holds_here("compiled")
    compiler = next((path for name in build.COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("lanes")
    (folder / "lanes.c").write_text(PROGRAM)
    words = [compiler, *build.FLAGS, "-I", str(build.SOURCES), "-o", "lanes.so", "lanes.c"]
    subprocess.run(words, cwd=folder, check=True, timeout=250)
    library = ctypes.CDLL(str(folder / "lanes.so"))
    library.sum.restype = library.greatest.restype = ctypes.c_float
    return library


def by(function: object, x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    out = torch.empty(len(x), dtype=kind)
    function(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, out)), ctypes.c_int64(len(x)))  # type: ignore[operator]
    return out


def test_exp_is_exact_to_the_last_bits(lanes: ctypes.CDLL) -> None:
    x = torch.cat((torch.linspace(-87, 88, 160_000), torch.linspace(-1, 1, 16_000)))
    exact = x.double().exp()
    assert ((by(lanes.exps, x, torch.float32).double() - exact).abs() <= 2**-22 * exact).all()
    assert (by(lanes.exps, torch.zeros(16), torch.float32) == 1.0).all()


def test_exp_is_nothing_far_below_and_finite_far_above(lanes: ctypes.CDLL) -> None:
    """A masked score must not weigh, not even by the least float there is."""
    least = torch.tensor([-87.01, -100.0, -1e30, -float("inf")]).repeat(4)
    assert (by(lanes.exps, least, torch.float32) == 0.0).all()
    assert (
        by(lanes.exps, torch.tensor([88.0, 1e4, 1e30, float("inf")]).repeat(4), torch.float32)
        .isfinite()
        .all()
    )


def test_halves_are_the_nearest_and_never_infinite(lanes: ctypes.CDLL) -> None:
    x = torch.randn(16_000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-8, 4, 16_000)
    assert torch.equal(by(lanes.halves, x, torch.half), x.half())
    far = torch.tensor([65504.0, 65519.0, 7e4, 1e30, float("inf"), -7e4, -1e30, -float("inf")]).repeat(2)
    assert torch.equal(by(lanes.halves, far, torch.half).float(), 65504.0 * far.sign())


def test_levels_are_the_nearest_ties_to_even(lanes: ctypes.CDLL) -> None:
    x = torch.arange(-127.0, 127.25, 0.25)
    x = torch.nn.functional.pad(x, (0, -len(x) % 16))
    assert torch.equal(by(lanes.bytes, x, torch.int8), x.round().to(torch.int8))


def test_over_all_lanes(lanes: ctypes.CDLL) -> None:
    for lane in range(16):
        x = torch.full((16,), -3.0)
        x[lane] = 50.0
        assert lanes.greatest(ctypes.c_void_p(x.data_ptr())) == 50.0
        assert lanes.sum(ctypes.c_void_p(x.data_ptr())) == 5.0
