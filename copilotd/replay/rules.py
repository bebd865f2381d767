"""When an editor asks: its debounce, and whether a key ends the request that is under way."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from copilotd.replay.trace import Event

_TYPED = 2
"""characters that one key brings at most, a closed bracket included; what is longer and no new line was pasted"""


class Rules(Struct, frozen=True):
    debounce_ms: float
    """from the last key until the request"""
    cancels: bool
    """a key ends the request under way; else it is left to the server"""
    asks_after_moves: bool
    """also when the cursor moves without a change"""
    asks_after_pastes: bool


EDITORS: Mapping[str, Rules] = {
    "vscode": Rules(debounce_ms=50, cancels=True, asks_after_moves=False, asks_after_pastes=False),
    "neovim": Rules(debounce_ms=200, cancels=False, asks_after_moves=True, asks_after_pastes=True),
}


def typed(change: Event) -> bool:
    """Whether a change came from a key, as far as it tells: typing, deleting, a new line with its indent."""
    return all(
        len(edit.text) <= _TYPED or not edit.text.strip() or edit.text[0] in "\r\n" for edit in change.edits
    )
