"""A model that runs in circles is stopped after the first round."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.texts import Change, Context

LONGEST_PERIOD = 6
"""lines"""
COPIES = 3
"""so many times the same lines, those above the cursor counted, are a circle"""
COPIES_WITHOUT_WORDS = 8
"""the same for lines without a letter: rows of zeros, rules"""
INLINE = 60
"""characters of a circle within a line, at least"""
_INLINE = re.compile(r"(.{3,60}?)\1{4,}")
_DIGITS = re.compile(r"(?=.*\d)[^\s,;]+")
"""digits over and over, but for the elements of a list"""
_WORD = re.compile(r"\w+")
_LETTER = re.compile(r"[^\W\d_]")
_LINE = 600


def repetition(context: Context, text: str) -> Change | None:
    """Cut the second and later copies of lines that come over and over, or of a piece within a line."""
    lines, places = [], []
    at = 0
    for number, line in enumerate(text.split("\n")):
        full = (context.head if number == 0 else "") + line
        if full.strip():
            lines.append(full.rstrip())
            places.append(at)
        at += len(line) + 1
    above = [line.rstrip() for line in context.before.split("\n")[:-1] if line.strip()][
        -COPIES_WITHOUT_WORDS * 2 :
    ]
    circle = _circle(above, lines)
    if circle is not None:
        return Change(text[: places[circle]].rstrip("\n"), "the same lines come over and over")
    for line, place in zip(text.split("\n"), _starts(text), strict=True):
        if end := circles(line):
            return Change(text[: place + end], "the same words come over and over")
    return None


def circles(line: str) -> int:
    """Where the first round of a circle within the line ends; 0 without one."""
    match = _INLINE.search(line[:_LINE])
    if match is None or len(match.group()) < INLINE:
        return 0
    return match.end(1) if _goes_round(match.group(1)) else 0


def _goes_round(piece: str) -> bool:
    """Whether a piece that comes again and again is a circle: words, but not the numbers of a table."""
    if _DIGITS.fullmatch(piece):
        return True
    thrice = piece * 3
    words = [w.group() for w in _WORD.finditer(thrice) if w.start() and w.end() < len(thrice)]
    return any(not word[0].isdigit() for word in words) if words else bool(_LETTER.search(piece))


def _starts(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _circle(above: list[str], lines: list[str]) -> int | None:
    """Which of `lines` begins the second copy (the first, where a copy stands above) of a circle."""
    every = above + lines
    first = len(above)
    for end in range(first + 1, len(every) + 1):
        for period in range(1, LONGEST_PERIOD + 1):
            unit = every[end - period : end]
            if len(unit) < period:
                break
            needed = COPIES if any(_LETTER.search(line) for line in unit) else COPIES_WITHOUT_WORDS
            start = end - period
            while start >= period and every[start - period : start] == unit:
                start -= period
            if (end - start) // period >= needed:
                return max(start + period - first, 0)
    return None


def echo(context: Context, text: str) -> Change | None:
    """Text that only says again what the last lines above say is no help."""
    if context.head.strip() or context.tail.strip():
        return None
    lines = [line.strip() for line in (context.head + text).split("\n") if line.strip()]
    above = [line.strip() for line in context.before.split("\n")[:-1] if line.strip()]
    if lines and above[-len(lines) :] == lines and any(_LETTER.search(line) for line in lines):
        return Change("", "it only repeats what stands above")
    return None
