"""Blank lines and blanks at both ends, against what stands around the cursor."""

from __future__ import annotations

from copilotd.completion.postprocess.indent import lead
from copilotd.completion.postprocess.languages import opens_bracket
from copilotd.completion.postprocess.texts import Change, Context

BLANK_LINES = 2
"""so many blank lines in a row, at most"""


def leading(context: Context, text: str) -> Change | None:
    """At column 0 of an empty line, no more blank lines than a file has between two parts."""
    if context.before.rpartition("\n")[2] or context.tail.strip() or not text.startswith("\n"):
        return None
    above = len(context.before) - len(context.before.rstrip("\n")) - 1
    if not context.before.strip():
        above = BLANK_LINES
    written = len(text) - len(text.lstrip("\n"))
    allowed = max(0, BLANK_LINES - max(0, above))
    if written <= allowed:
        return None
    return Change(text[written - allowed :], "blank lines enough stand above")


def trailing(context: Context, text: str) -> Change | None:
    """The line end after the cursor is there already; before code that moves down, its indentation is not."""
    if not text.strip():
        return Change("", "nothing but blanks") if text else None
    if not context.tail.strip():
        kept = text.rstrip()
        return None if kept == text else Change(kept, "the document goes on with a line end")
    indentation = lead(context.head)
    closing = context.tail.lstrip()[:1] in (")", "]", "}")
    if text.startswith("\n") and closing and opens_bracket(context.head) and text.rstrip(" \t")[-1:] != "\n":
        last = text.rpartition("\n")[2].strip()
        if last[:1] not in (")", "]", "}"):
            return Change(text.rstrip() + "\n" + indentation, "the closer stands on a line of its own")
    rest, end, last = text.rpartition("\n")
    if end and not last.strip() and last != indentation:
        return Change(rest + end + indentation, "what stands right of the cursor keeps its indentation")
    return None
