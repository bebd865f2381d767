"""Markers of the model's own language and halves of characters never reach the buffer."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.languages import language
from copilotd.completion.postprocess.texts import Change, Context

_NAMES = [
    "endoftext",
    "im_start",
    "im_end",
    "fim_prefix",
    "fim_middle",
    "fim_suffix",
    "fim_pad",
    "repo_name",
    "file_sep",
    "file_separator",
    "cursor",
    "user_cursor_is_here",
    "endofprompt",
]
_BARE = [
    "fim_prefix",
    "fim_middle",
    "fim_suffix",
    "fim_pad",
    "repo_name",
    "file_sep",
    "filename",
    "gh_stars",
    "issue_start",
    "issue_comment",
    "issue_closed",
    "jupyter_start",
    "jupyter_text",
    "jupyter_code",
    "jupyter_output",
    "jupyter_script",
    "empty_output",
]
_MARKER = re.compile(rf"<\|[A-Za-z][A-Za-z0-9_▁]*\|>|<｜[^｜\n]{{1,40}}｜>|<(?:{'|'.join(_BARE)})>")
_WHOLE = tuple(f"<|{name}|>" for name in _NAMES) + tuple(f"<{name}>" for name in _BARE)
_HALF = re.compile("[\ud800-\udfff\ufffd\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u2028\u2029]")
_BOM = "\ufeff"
_JOINER = "\u200d"


def _half_a_marker(text: str) -> int:
    """Where a marker begins whose end is still to come; the text's length where none does."""
    start = text.rfind("<")
    rest = text[start:] if start >= 0 else ""
    if len(rest) >= 3 and any(marker.startswith(rest) for marker in _WHOLE):
        return start
    return len(text)


def answer(text: str) -> str:
    """The text without the markers before it."""
    while match := _MARKER.match(text):
        text = text[match.end() :]
    return text


def markers(context: Context, text: str) -> Change | None:
    """What goes before the answer is dropped; from the first marker on, the answer has ended."""
    rest = answer(text)
    match = _MARKER.search(rest)
    kept = rest[: match.start()] if match else rest[: _half_a_marker(rest)]
    return None if kept == text else Change(kept, "the model wrote a control marker")


def characters(context: Context, text: str) -> Change | None:
    """Line ends are "\\n"; half characters, and what no editor shows, end the answer."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n").replace(_BOM, "")
    if match := _HALF.search(kept):
        kept = kept[: match.start()]
    kept = kept.rstrip(_JOINER)
    return None if kept == text else Change(kept, "half a character, or one that no editor shows")


def fence(context: Context, text: str) -> Change | None:
    """A model that falls into chat fences its code: ``` in a file that isn't prose ends the answer."""
    if language(context.language).prose:
        return None
    if not context.head and text.startswith("```"):
        return Change("", "a chat fence")
    place = text.find("\n```")
    return None if place < 0 else Change(text[:place], "a chat fence")
