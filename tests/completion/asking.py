"""Asks from texts with the cursor marked."""

from __future__ import annotations

from typing import Any

from copilotd.completion.ask import Ask


def ask(marked: str, **changes: Any) -> Ask:
    """An ask at the "‸" of a text."""
    before, after = marked.split("‸")
    return at(before + after, len(before), **changes)


def at(text: str, offset: int, **changes: Any) -> Ask:
    given = {"client": "a", "uri": "file:///w/a.py", "language": "python", "path": "a.py", "repository": "w"}
    return Ask(**(given | {"text": text, "offset": offset} | changes))


def never() -> bool:
    return False
