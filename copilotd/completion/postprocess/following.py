"""The lines that stand below the cursor are not written again."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.brackets import depth, errors
from copilotd.completion.postprocess.indent import width
from copilotd.completion.postprocess.languages import CLOSERS
from copilotd.completion.postprocess.texts import Change, Context

_NOTHING_ELSE = re.compile(rf"[{re.escape(CLOSERS)};,\s]*")
_CLOSERS = re.compile(rf"[{re.escape(CLOSERS)}]+[;,]?")
PREFIX_SHARE = 0.6
"""so much of the line below, at the very end of the text, is that line being written again"""


def following(context: Context, text: str) -> Change | None:
    """Cut at the first line that is the next one below, blank lines ignored on both sides.

    The same words at the same depth, or less deep than they stand below, are the same line. So are closing brackets, unless with both of them all
    brackets are right and without one of them they are not; at another depth, if there would be too many.
    """
    below = context.below.rstrip()
    if not below:
        return None
    lines = text.split("\n")
    at = 0
    for number, line in enumerate(lines):
        full = ((context.head if number == 0 else "") + line).rstrip()
        if line.strip() and _same(context, text, at, full, below, number == len(lines) - 1):
            return Change(text[:at].rstrip(), "from here on the text repeats what stands below")
        at += len(line) + 1
    return None


def _same(context: Context, text: str, at: int, line: str, below: str, last: bool) -> bool:
    written, standing = line.strip(), below.strip()
    if not _NOTHING_ELSE.fullmatch(written):
        deep = width(context, line) == width(context, below)
        begun = (
            last and at > 0 and standing.startswith(written) and len(written) >= PREFIX_SHARE * len(standing)
        )
        deeper = width(context, line) < width(context, below)
        return (deep and begun) or ((deep or deeper) and written == standing)
    closers = _CLOSERS.match(written)
    if closers is None or not standing.startswith(closers.group().rstrip(";,")):
        return False
    through = text[: (text + "\n").find("\n", at)]
    if depth(context, through) >= 0:
        return False
    with_it, without = errors(context, through), errors(context, text[:at])
    if width(context, line) == width(context, below):
        return not with_it == 0 < without
    return without < with_it
