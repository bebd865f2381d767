"""Which kernels this processor has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from copilotd.engine.products import int8_products_are_exact, nf4_is_fused
from copilotd.models.quantise import why_not_compiled


def holds_here(hold: str) -> None:
    """Skip the test where weights cannot be held so."""
    if hold.startswith("compiled") and (reason := why_not_compiled()):
        pytest.skip(reason)
    if hold == "nf4" and not nf4_is_fused():
        pytest.skip("no fused NF4 kernel on this processor")
    if hold == "int8" and not int8_products_are_exact():
        pytest.skip("no exact int8 product on this processor")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """torch's, and so the kernels', number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
