"""One line of `copilotd doctor`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "skipped", "warning", "failed"]


class Finding(Struct, frozen=True):
    name: str
    level: Level
    """skipped: nobody can say now; the text says why. warning: copilotd works, but not as well as it could.
    failed: no completions before it is mended"""
    text: str
    remedy: str = ""
    """what to do; never empty under a warning or a failure"""


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def skipped(name: str, text: str) -> Finding:
    return Finding(name, "skipped", text)


def warning(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, "warning", text, remedy)


def failed(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, "failed", text, remedy)
