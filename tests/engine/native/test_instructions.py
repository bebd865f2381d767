"""What a processor can do beyond AVX2 changes the time that a product takes, and no bit of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from copilotd.engine.native import build, library
from copilotd.engine.native.products import Compiled, pack_int8, pack_nf4
from copilotd.engine.products import quantise_rows
from tests.support.kernels import holds_here, threads

WITHOUT = {
    "AMX": ["-mno-amx-int8"],
    "AVX-512": ["-mno-amx-int8", "-mno-avx512f"],
    "VNNI": ["-mno-amx-int8", "-mno-avx512f", "-mno-avxvnni"],
}
"""flags by what is gone with them, the least first"""
ROWS = (1, 4, 7, 8, 16, 37, 64, 101)


def products(flags: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Of both kinds of weights, by kernels compiled with these flags."""
    with monkeypatch.context() as here:
        here.setattr(build, "FLAGS", (*build.FLAGS, *flags))
        here.setenv("COPILOTD_HOME", str(folder))
        here.setattr(build, "installed", lambda: folder / "none")
        kernels = library.kernels.__wrapped__()
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(50, 300, generator=draw)
    levels, scale = quantise_rows(weight)
    both = [Compiled(*pack_int8(levels, scale), 50, 300), Compiled(pack_nf4(weight), None, 50, 300)]
    results = []
    with threads(2):
        for product in both:
            monkeypatch.setattr(product, "_kernels", kernels)
            results += [product(torch.randn(rows, 300, generator=draw)) for rows in ROWS]
    return results


def test_every_set_of_instructions_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds_here("compiled")
    if not {"avx_vnni", "avx512_vnni", "amx_int8"} & set(build._processor().split()):
        pytest.skip("this processor has AVX2 and nothing beyond")
    expected = products([], tmp_path, monkeypatch)
    for gone, flags in WITHOUT.items():
        for result, same in zip(products(flags, tmp_path, monkeypatch), expected, strict=True):
            assert torch.equal(result, same), gone
