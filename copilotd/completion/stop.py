"""When a text has come far enough, and where it may end when time is up."""

from __future__ import annotations

from msgspec.structs import replace

from copilotd.completion.ask import Ask
from copilotd.completion.postprocess import Context, scope
from copilotd.completion.window import unix

AROUND = 16_384
"""characters on each side of the cursor that the rules see"""


def context_of(ask: Ask, cursor: int, chosen: str) -> Context:
    """What stands around the cursor, and how much is wanted there."""
    context = Context(
        before=unix(ask.text[max(0, cursor - AROUND) : cursor]),
        after=unix(ask.text[cursor : cursor + AROUND]),
        language=ask.language,
        selected=chosen,
        tab_size=ask.tab_size,
        insert_spaces=ask.insert_spaces,
    )
    return replace(context, scope=scope(context, ask.settings))


def chosen_by_popup(ask: Ask) -> str | None:
    """What the popup's highlighted entry would still write; "" without a popup, None where that replaces
    what was typed, so that no text after the cursor extends it."""
    if ask.selected is None:
        return ""
    start, end, text = ask.selected
    typed = ask.text[start : ask.offset]
    if start > ask.offset or end != ask.offset or not text.startswith(typed):
        return None
    return text[len(typed) :]


def at_boundary(text: str) -> str:
    """What may be shown of a text whose writing was ended by the clock: its whole lines, or its only one."""
    whole, newline, _ = text.rpartition("\n")
    return whole if newline and whole.strip() else text
