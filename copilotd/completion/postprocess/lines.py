"""One line where one line is wanted, and never more than a screen or a line that no screen shows."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.texts import Change, Context

_CLOSERS = re.compile(r"[)\]}\"'`;,>\s]*")
MAX_LINE = 240
MAX_LINES = 40
MAX_CHARACTERS = 4_000


def one_line(context: Context, text: str) -> Change | None:
    """One line. At the end of a line that is done, the one line may be the next.

    Before code that begins the cursor's line, the line is one of its own and keeps its line end.
    """
    if context.scope != "line":
        return None
    lead = len(text) - len(text.lstrip("\n"))
    if lead and context.tail.strip():
        return Change("", "one line is wanted, and the line was to be broken")
    end = text.find("\n", lead)
    if end >= 0 and not context.head.strip() and not _CLOSERS.fullmatch(context.tail):
        end += 1
    return Change(text[:end], "one line is wanted here") if 0 <= end < len(text) else None


def long(context: Context, text: str) -> Change | None:
    """A line over MAX_LINE is cut at a blank, a comma or a semicolon, and ends the item; so does too much."""
    lines = text.split("\n")
    room = MAX_CHARACTERS
    for number, line in enumerate(lines):
        if len(line) > MAX_LINE:
            if number:
                return Change("\n".join(lines[:number]), f"line {number + 1} is over {MAX_LINE} characters")
            end = max(line.rfind(mark, 0, MAX_LINE) for mark in " ,;") + 1
            return Change(line[: end or MAX_LINE].rstrip(" "), f"the line is over {MAX_LINE} characters")
        room -= len(line) + 1
        if number == MAX_LINES or room < 0:
            return Change(
                "\n".join(lines[:number]), f"more than {MAX_LINES} lines or {MAX_CHARACTERS} characters"
            )
    return None
