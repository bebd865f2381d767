"""Which kernels this processor has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from copilotd.engine.native.build import CannotBuild
from copilotd.engine.native.library import kernels as compiled
from copilotd.engine.products import int8_products_are_exact, nf4_is_fused


def holds_here(hold: str) -> None:
    """Skip the test where weights cannot be held so."""
    if hold.startswith("compiled"):
        try:
            compiled()
        except CannotBuild as error:
            pytest.skip(str(error))
    if hold == "nf4" and not nf4_is_fused():
        pytest.skip("no fused NF4 kernel on this processor")
    if hold == "int8" and not int8_products_are_exact():
        pytest.skip("no exact int8 product on this processor")


def loads_here(quantisation: str, kernels: str) -> None:
    """Skip the test where a model cannot be loaded so, by these settings on a CPU."""
    if kernels == "auto":
        holds_here("compiled")
    elif quantisation == "nf4":
        holds_here("nf4")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """torch's, and so the kernels', number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
