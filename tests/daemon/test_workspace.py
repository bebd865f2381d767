"""What the daemon asks of the index."""

from __future__ import annotations

from copilotd.daemon.workspace import names_near


def test_names_are_nearest_first() -> None:
    text = "import settle, book\nresult = settle(posting)\nx = other"
    cursor = text.index("posting")
    assert names_near(text, cursor) == ("posting", "settle", "result", "other", "book", "import")
