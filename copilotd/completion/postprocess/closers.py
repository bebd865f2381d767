"""Closing brackets that close nothing, or that stand on the next line."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.brackets import depth, errors, unopened_closer
from copilotd.completion.postprocess.languages import CLOSERS, language
from copilotd.completion.postprocess.texts import Change, Context


def unopened(context: Context, text: str) -> Change | None:
    """Code ends before a closing bracket that does not fit the innermost open one."""
    if language(context.language).prose:
        return None
    place = unopened_closer(context, text)
    return None if place is None else Change(text[:place], "a closing bracket that closes nothing")


def closers_below(context: Context, text: str) -> Change | None:
    """Closing brackets at the text's end that the next line already holds, or without which all is right."""
    if context.tail.lstrip()[:1] in tuple(CLOSERS):
        return None
    standing = context.below.strip()
    best, fewest = text, errors(context, text)
    kept = text
    while fewest and kept.rstrip()[-1:] in tuple(CLOSERS) and depth(context, kept) < 0:
        kept = kept.rstrip()[:-1]
        dropped = re.sub(r"\s", "", text[len(kept) :])
        now = errors(context, kept)
        if now < fewest and (now == 0 or standing.startswith(dropped)):
            best, fewest = kept, now
    return None if best == text else Change(best.rstrip(), "its closing brackets are closed already")
