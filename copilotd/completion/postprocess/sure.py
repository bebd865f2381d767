"""More than one line only while the model is sure of it."""

from __future__ import annotations

from copilotd.completion.postprocess.texts import Change, Context


def sure(context: Context, text: str) -> Change | None:
    """What is shown of several lines is to be mostly right."""
    if context.scope == "line" or context.sure is None or len(text) <= context.sure:
        return None
    return Change(text[: context.sure], "of more lines the model is not sure")


def whole_lines(text: str, doubt: int) -> int | None:
    """Where the last line ends that is over before `doubt`, the code point at which the model's doubts begin.

    The first line that is not blank is offered in any case; None while it has no end.
    """
    begin = len(text) - len(text.lstrip())
    first = text.find("\n", begin)
    if first < 0:
        return None
    end = text.rfind("\n", 0, doubt + 1)
    return max(first, len(text[: max(end, 0)].rstrip()))
