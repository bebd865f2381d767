"""What counts as typed, for editors that do not ask after a paste."""

from __future__ import annotations

import pytest

from copilotd.replay.rules import EDITORS, typed
from copilotd.replay.trace import Edit, Event


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", True),
        ("()", True),
        ("", True),
        ("\n        ", True),
        ("\n    \n}", True),
        ("    ", True),
        ("import os\n", False),
        ("abc", False),
    ],
)
def test_a_key_is_told_from_a_paste(text: str, key: bool) -> None:
    assert typed(Event(t=0, change="a", edits=(Edit(((0, 0), (0, 0)), text),))) is key


def test_the_two_editors_differ() -> None:
    assert EDITORS["vscode"].debounce_ms < EDITORS["neovim"].debounce_ms
    assert (EDITORS["vscode"].cancels, EDITORS["neovim"].cancels) == (True, False)
