"""Windows of a document around the cursor: line ends, line starts, what fits into a number of tokens.

Offsets are code points of the document's own text, which may be large: every function looks at a bounded
piece of it. What goes into a prompt has "\\n" only; the document's own line ends never do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeAlias

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

CHARACTERS_PER_TOKEN = 8
"""more than code has on the average: so much text is looked at for a window of one token"""

Span: TypeAlias = tuple[int, int]
Count: TypeAlias = Callable[[str], int]
"""tokens of a text with "\\n" only"""


def unix(text: str) -> str:
    """The text with "\\n" as its only line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def line_end(text: str, offset: int) -> str:
    """The line end that the document uses near `offset`."""
    near = text[max(0, offset - 4096) : offset + 4096]
    return "\r\n" if "\r\n" in near else "\r" if "\r" in near and "\n" not in near else "\n"


def at_line_start(text: str, offset: int) -> bool:
    before = text[offset - 1 : offset] if offset else "\n"
    return before == "\n" or (before == "\r" and text[offset : offset + 1] != "\n")


def lines_above(text: str, end: int, limit: int) -> list[Span]:
    """Whole lines before `end`, in the document's order; the last one may be the first part of a line.

    At most `limit` characters are looked at. A line that starts farther up is left out, but for the only one.
    """
    low = max(0, end - limit)
    spans = [match.span() for match in LINE.finditer(text, low, end)]
    if len(spans) > 1 and not at_line_start(text, low):
        spans = spans[1:]
    return spans


def lines_below(text: str, start: int, limit: int) -> list[Span]:
    """The rest of the line at `start` and whole lines after it; a line that ends farther down is left out."""
    high = min(len(text), start + limit)
    spans = [match.span() for match in LINE.finditer(text, start, high)]
    if len(spans) > 1 and high < len(text) and not at_line_start(text, high):
        spans = spans[:-1]
    return spans


def fitting_start(text: str, spans: Sequence[Span], budget: int, count: Count) -> int:
    """The line start from which the end of `spans` takes at most `budget` tokens.

    When not even the last line fits, a place within that line.
    """
    start = spans[-1][1] if spans else 0
    for low, high in reversed(spans):
        budget -= count(unix(text[low:high]))
        if budget < 0:
            return start if start < spans[-1][1] else _within_from_end(text, (low, high), budget, count)
        start = low
    return start


def fitting_end(text: str, spans: Sequence[Span], budget: int, count: Count) -> int:
    """The line start up to which the beginning of `spans` takes at most `budget` tokens; see above."""
    end = spans[0][0] if spans else 0
    for low, high in spans:
        budget -= count(unix(text[low:high]))
        if budget < 0:
            return end if end > spans[0][0] else _within_from_start(text, (low, high), budget, count)
        end = high
    return end


def _within_from_end(text: str, span: Span, over: int, count: Count) -> int:
    low, high = span
    start = low
    budget = count(unix(text[low:high])) + over
    while start < high and count(unix(text[start:high])) > budget:
        start = _safe_cut(text, start + max(1, (high - start) // 4), high)
    return start


def _within_from_start(text: str, span: Span, over: int, count: Count) -> int:
    low, high = span
    end = high
    budget = count(unix(text[low:high])) + over
    while end > low and count(unix(text[low:end])) > budget:
        end -= max(1, (end - low) // 4)
        while low < end < high and not _may_cut(text, end):
            end -= 1
    return end


def _safe_cut(text: str, offset: int, high: int) -> int:
    while offset < high and not _may_cut(text, offset):
        offset += 1
    return offset


def _may_cut(text: str, offset: int) -> bool:
    """Neither within "\\r\\n" nor where NFC, which some tokenizers apply, would join across the cut."""
    before, after = text[offset - 1], text[offset]
    if before + after == "\r\n" or unicodedata.combining(after):
        return False
    return unicodedata.is_normalized("NFC", before + after) or not unicodedata.is_normalized("NFC", after)
