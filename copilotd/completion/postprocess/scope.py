"""How much to offer: nothing, one line, or a block."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.brackets import in_comment, opens_block
from copilotd.completion.postprocess.languages import language
from copilotd.completion.postprocess.texts import Context, Scope
from copilotd.config import SessionSettings

_CLOSERS = re.compile(r"[)\]};,\s]*")


def scope(context: Context, settings: SessionSettings) -> Scope:
    """One line in the middle of a line; a block on an empty line or after what opens one.

    `comments` decides first, in comments and in prose; then `multiline`. After an opener and a blank the rest
    is to follow on the same line.
    """
    prose = language(context.language).prose
    comment = prose or in_comment(context)
    if comment and settings.comments == "off":
        return "none"
    if settings.multiline == "never" or (comment and settings.comments == "line"):
        return "line"
    if settings.multiline == "always":
        return "block"
    if context.blank:
        return "block"
    opens = not context.head.endswith(" ") and opens_block(context.language, context.head)
    return "block" if opens and not comment and _CLOSERS.fullmatch(context.tail) else "line"
