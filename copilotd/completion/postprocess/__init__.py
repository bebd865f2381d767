"""From what the model says to what fits where it lands: one module per rule, pure functions on texts."""

from __future__ import annotations

from copilotd.completion.postprocess import (
    block,
    closers,
    control,
    edges,
    following,
    indent,
    lines,
    overlap,
    popup,
    repetition,
    sure,
)
from copilotd.completion.postprocess.scope import scope
from copilotd.completion.postprocess.texts import Applied, Context, Result, Rule, Scope

__all__ = ["CUTS", "RULES", "Context", "Result", "Rule", "Scope", "apply", "enough", "scope"]

RULES: dict[str, Rule] = {
    "sure": sure.sure,
    "characters": control.characters,
    "markers": control.markers,
    "fence": control.fence,
    "indent.first_line": indent.first_line,
    "indent.unit": indent.unit,
    "leading": edges.leading,
    "one_line": lines.one_line,
    "unopened": closers.unopened,
    "following": following.following,
    "repetition": repetition.repetition,
    "block": block.block,
    "long": lines.long,
    "echo": repetition.echo,
    "trailing": edges.trailing,
    "closers_below": closers.closers_below,
    "overlap": overlap.overlap,
    "popup": popup.popup,
}
"""In this order: first how much the model stands for, then what is no text at all, then where it stands, then where it ends."""

CUTS = ("markers", "fence", "one_line", "unopened", "following", "repetition", "block", "long")
"""Rules that may end a text while it is being written."""


def apply(context: Context, text: str, off: frozenset[str] = frozenset()) -> Result:
    """What of `text` to insert at the cursor; rules named in `off` are left out (to measure them)."""
    covers = 0
    applied = []
    for name, rule in RULES.items():
        if not text:
            break
        if name not in off and (change := rule(context, text)) is not None:
            text, covers = change.text, change.covers
            applied.append(Applied(name, change.reason))
    if not text.strip() or text == context.after[:covers]:
        text, covers = "", 0
    return Result(text, covers, tuple(applied))


def enough(context: Context, text: str) -> bool:
    """More of this text would be cut: asked after every round of decoding. Judges complete lines, and a last one that has no end."""
    if context.scope == "block" and context.sure is not None:
        return True
    if (clean := control.characters(context, text)) is not None:
        text = clean.text
    text = control.answer(text)
    lead = len(text) - len(text.lstrip())
    if context.scope == "line" and "\n" in text[lead:]:
        return True
    end = text.rfind("\n")
    if len(text) - end > lines.MAX_LINE or repetition.circles(text[end + 1 :]):
        return True
    if end <= lead:
        return False
    complete = text[:end]
    # half a marker is none once its line has ended
    return control.markers(context, text[: end + 1]) is not None or any(
        (change := RULES[name](context, complete)) and len(change.text) < end
        for name in CUTS
        if name != "markers"
    )
