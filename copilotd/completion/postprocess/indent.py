"""Indentation in the file's own unit, at the depth where the cursor stands."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise

from copilotd.completion.postprocess.brackets import code_of, opens_block
from copilotd.completion.postprocess.languages import closes, language, opens_bracket
from copilotd.completion.postprocess.texts import Change, Context

_LEAD = re.compile(r"[ \t]*")
_GOES_ON = re.compile(r"[.+\-*/&|?:<>=)\]},]")
_UNDONE = ("(", "[", "{", ",", "\\", "=", "+", "-", "*", "/", "&", "|", "?", "<", ".")
USUAL = 4
LINES = 400
"""lines on each side of the cursor that are asked for the file's unit"""
MIXED = 5
"""a file of which one line in so many is indented in the other way has no unit of its own"""
WIDTHS = (4, 2, 8, 3, 6, 1)
"""blanks per level, the likelier first"""


def lead(line: str) -> str:
    """The blanks a line begins with."""
    match = _LEAD.match(line)
    return match.group() if match else ""


@lru_cache(maxsize=8)
def _unit(before: str, after: str) -> str | None:
    """None: the lines are indented in both ways."""
    lines = before.split("\n")[-LINES - 1 : -1] + after.split("\n")[1:LINES]
    leads = [lead(line) for line in lines if line.strip()]
    tabs = sum(blanks.startswith("\t") for blanks in leads)
    spaces = sum(blanks.startswith("  ") for blanks in leads)
    if min(tabs, spaces) * MIXED > max(tabs, spaces):
        return None
    if tabs > spaces:
        return "\t"
    if not spaces:
        return ""
    steps = Counter(
        len(deeper) - len(shallow)
        for shallow, deeper in pairwise(leads)
        if 1 < len(deeper) - len(shallow) <= 8 and "\t" not in deeper + shallow
    )
    if not steps:
        depths = [len(blanks) for blanks in leads if blanks and "\t" not in blanks]
        return " " * next(width for width in WIDTHS if all(depth % width == 0 for depth in depths))
    return " " * max(steps, key=lambda step: (steps[step], -step))


def file_unit(context: Context) -> str:
    """One level of indentation as the file shows it, else as the editor says or all do, else "" (not known).

    The cursor's own line counts only where no other line is indented: an editor may have filled it in.
    """
    shown = _unit(context.before, context.after)
    if shown != "":
        return shown or ""
    if context.insert_spaces is False:
        return "\t"
    if context.insert_spaces and context.tab_size:
        return " " * context.tab_size
    return "\t" if context.head.startswith("\t") else language(context.language).unit


def _tab_columns(context: Context) -> int:
    unit = file_unit(context)
    return len(unit) if unit.strip("\t") else context.tab_size or USUAL


def width(context: Context, line: str) -> int:
    """Columns of a line's indentation."""
    return len(lead(line).expandtabs(_tab_columns(context)))


def unit(context: Context, text: str) -> Change | None:
    """Lines of the text that are indented in another unit than the file's are indented in the file's."""
    own = file_unit(context)
    if not own:
        return None
    lines = text.split("\n")
    fresh = 0 if not context.head else 1
    kept = _to_tabs(context, lines, fresh) if own == "\t" else _to_spaces(lines, fresh, own)
    if kept == lines:
        return None
    return Change(
        "\n".join(kept), f"the file indents with {'tabs' if own == chr(9) else f'{len(own)} blanks'}"
    )


def _to_spaces(lines: list[str], fresh: int, own: str) -> list[str]:
    kept = list(lines)
    for number, line in enumerate(lines[fresh:], fresh):
        blanks = lead(line)
        if "\t" in blanks:
            kept[number] = blanks.expandtabs(len(own)) + line[len(blanks) :]
    return kept


def _to_tabs(context: Context, lines: list[str], fresh: int) -> list[str]:
    spaced = [
        number
        for number, line in enumerate(lines)
        if number >= fresh and line.strip() and line.startswith(" ")
    ]
    if not spaced:
        return lines
    per_level, base = _levels(context, lines, spaced)
    kept = list(lines)
    for number in spaced:
        blanks = lead(lines[number])
        levels, left = divmod(len(blanks.expandtabs(per_level)), per_level)
        kept[number] = "\t" * (base + levels) + " " * left + lines[number][len(blanks) :]
    return kept


def _levels(context: Context, lines: list[str], spaced: list[int]) -> tuple[int, int]:
    """(blanks that the model means by one level, levels it leaves out): what puts the first indented line where
    it belongs and lets no line jump by more than a level."""
    first = spaced[0]
    above = next(
        (line for line in reversed([context.head + lines[0], *lines[1:first]]) if line.strip()), context.above
    )
    here = lead(context.head).count("\t")
    target = lead(above).count("\t") + (opens_block(context.language, above) or opens_bracket(above))
    target -= closes(context.language, lines[first])
    widths = [len(lead(lines[number]).expandtabs(USUAL)) for number in spaced]

    def strangeness(choice: tuple[int, int]) -> float:
        per_level, base = choice
        levels = [base + columns / per_level for columns in widths]
        jumps = sum(max(0.0, deeper - shallow - 1) for shallow, deeper in pairwise(levels))
        return abs(levels[0] - target) + jumps

    fitting = [width for width in WIDTHS if width > 1 and all(columns % width == 0 for columns in widths)]
    return min(((width, base) for base in (0, here) for width in fitting or [USUAL]), key=strangeness)


def expected(context: Context) -> int | None:
    """Columns at which a new line should begin here; None where the line above doesn't say."""
    above = context.above
    if not above:
        return 0
    columns = width(context, above)
    if opens_block(context.language, above):
        return columns + len((file_unit(context) or " " * USUAL).expandtabs(_tab_columns(context)))
    return None if above.rstrip().endswith(_UNDONE) else columns


def first_line(context: Context, text: str) -> Change | None:
    """The first line joins the blanks that are already typed: neither twice nor too deep.

    At column 0 below a line that opens a block, a text without its indentation gets it.
    """
    head = context.head
    if head.strip():
        doubled = head[-1:] in " \t" and text[:1] in (" ", "\t") and bool(text.strip())
        return Change(text.lstrip(" \t"), "a blank stands left of the cursor") if doubled else None
    if context.tail.strip():
        return None
    kept = text
    if (head and text.startswith("\n")) or (text.lstrip(" \t").startswith("\n") and text.strip()):
        kept = text.lstrip("\n \t") if head else text
    blanks = lead(kept)
    body = kept[len(blanks) :]
    if not body or body.startswith("\n"):
        return None if kept == text else Change(kept, "the cursor's line is still empty")
    typed, written = width(context, head), len(blanks.expandtabs(_tab_columns(context)))
    target = expected(context)
    if head and written:
        blanks = _remaining(context, head, body, typed, written, target, blanks)
    elif not head and not written and _lacks_indentation(context, body, target):
        blanks = _blanks(context, target or 0)
    kept = blanks + body
    return None if kept == text else Change(kept, "the line's indentation, as far as it is typed")


def _remaining(
    context: Context, head: str, body: str, typed: int, written: int, target: int | None, blanks: str
) -> str:
    """What of the blanks the text begins with is still to be written."""
    total = typed + written
    if total == target and opens_block(context.language, context.above):
        return blanks
    if written == typed:
        return ""
    if (
        target is None
        or (_GOES_ON.match(body) and written != target)
        or (total <= target and written != target)
    ):
        return blanks
    return blanks if target - typed == written else _blanks(context, max(0, target - typed))


def _blanks(context: Context, columns: int) -> str:
    if file_unit(context) == "\t":
        return "\t" * (columns // _tab_columns(context)) + " " * (columns % _tab_columns(context))
    return " " * columns


def _lacks_indentation(context: Context, body: str, target: int | None) -> bool:
    above = context.before.split("\n")[-2:-1]
    directly_below_an_opener = bool(above) and code_of(context.language, above[0]).endswith((":", "{"))
    beside_others = bool(context.below) and not closes(context.language, context.below)
    return (
        directly_below_an_opener
        and bool(target)
        and not closes(context.language, body)
        and not body.startswith("#")
        and not (beside_others and width(context, context.below) < (target or 0) and body[:1] != "\n")
    )
