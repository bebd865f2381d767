"""Faults of ours, named without the text they may hold."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def place(error: BaseException) -> str:
    """Type of the exception and the last line of our own code that it passed."""
    where = "outside copilotd"
    trace = error.__traceback__
    while trace:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):
            where = f"{file.relative_to(PACKAGE)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {where}"
