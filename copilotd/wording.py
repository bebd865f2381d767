"""Words that reports for people share."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
