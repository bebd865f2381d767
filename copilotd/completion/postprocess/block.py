"""A block ends where its lines leave the block the cursor stands in."""

from __future__ import annotations

from copilotd.completion.postprocess.brackets import errors, opens_block
from copilotd.completion.postprocess.indent import width
from copilotd.completion.postprocess.languages import (
    CLOSERS,
    closes,
    goes_on,
    language,
    opens_bracket,
)
from copilotd.completion.postprocess.texts import Change, Context


def block(context: Context, text: str) -> Change | None:
    """Below an opener the whole body; elsewhere a paragraph, and nothing of an outer block.

    Lines that leave the block stay only if they close what is open and nothing else closes, or go on with
    the statement (`else`) whose body is being written.
    """
    if context.scope == "line" or "\n" not in text:
        return None
    end = _end(context, text)
    if end is None or not text[end:].strip():
        return None
    return Change(text[:end].rstrip(), "the block ends here")


def _end(context: Context, text: str) -> int | None:
    lines = text.split("\n")
    lines[0] = context.head + lines[0]
    floor, body = _floor(context, lines)
    at = len(text.split("\n", 1)[0]) + 1
    started = bool(lines[0].strip())
    blank_above = False
    closed = False
    if started and not body and _ends_statement(context, lines[0]):
        return at
    for number, line in enumerate(lines[1:], 1):
        if not line.strip():
            blank_above = True
            at += len(line) + 1
            continue
        columns = width(context, line)
        if context.language in ("c", "cpp", "csharp") and line.startswith("#"):
            pass
        elif columns < floor or (body and columns == floor and started) or closed:
            if goes_on(context.language, line) and body and columns == floor and not blank_above:
                closed = False
                if errors(context, text) > errors(context, text[:at]):
                    return at
            elif closes(context.language, line) and not blank_above and _missing(context, text, at, line):
                closed, floor = True, columns
            else:
                return at
        elif not body and blank_above and started and columns <= floor:
            return at
        started, blank_above = True, False
        at += len(line) + 1
        if number < len(lines) - 1 and columns <= floor and _ends_statement(context, line):
            return at
    return None


def _floor(context: Context, lines: list[str]) -> tuple[int, bool]:
    """Columns of the block's border; whether it is the opener's (the body is deeper) or the siblings'."""
    head = context.head
    if head.strip():
        opens = opens_block(context.language, head) or opens_bracket(head)
        return width(context, head), opens or opens_block(context.language, lines[0])
    above = context.above
    first = next((line for line in lines if line.strip()), "")
    columns = width(context, first) if first.strip() else width(context, head)
    if (opens_block(context.language, above) or opens_bracket(above)) and width(context, above) < max(
        columns, width(context, head)
    ):
        return width(context, above), True
    return columns, False


def _missing(context: Context, text: str, at: int, line: str) -> bool:
    """A line that closes a block is needed: without it a bracket stays open, or a word is still to come."""
    below, columns = context.below, width(context, line)
    deep = width(context, below) == columns
    if line.strip()[:1] not in CLOSERS:
        return not (deep and below.strip() == line.strip())
    with_it, without = errors(context, text[: at + len(line)]), errors(context, text[:at])
    if deep and below.strip()[:1] == line.strip()[:1]:
        return with_it == 0 < without
    return with_it < without or (with_it == without and width(context, below) <= columns)


def _ends_statement(context: Context, line: str) -> bool:
    end = language(context.language).statement_end
    return bool(end) and line.rstrip().endswith(end)
