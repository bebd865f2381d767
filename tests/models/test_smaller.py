"""Which pair comes next when memory does not suffice."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd.models import store
from copilotd.models.catalogue import Entry, named


@pytest.mark.parametrize(
    ("model", "there", "expected"),
    [
        ("Qwen2.5-Coder-32B", {"Qwen2.5-Coder-1.5B", "starter"}, "Qwen2.5-Coder-1.5B"),
        ("Qwen2.5-Coder-7B", {"Qwen2.5-Coder-3B", "starter"}, "starter"),
        ("Qwen2.5-Coder-1.5B", {"Qwen2.5-Coder-32B", "embedded", "embedded-draft"}, "embedded"),
        ("embedded", {"embedded", "embedded-draft"}, ""),
        ("Qwen2.5-Coder-0.5B", set(), ""),
    ],
)
def test_the_largest_smaller_target_on_disk_that_everybody_may_use(
    monkeypatch: pytest.MonkeyPatch, model: str, there: set[str], expected: str
) -> None:
    def found(entry: Entry) -> Path | None:
        return Path("/somewhere") if entry.name in there else None

    monkeypatch.setattr(store, "on_disk", found)
    assert store.smaller(named(model)) == expected


def test_an_unknown_model_has_none() -> None:
    assert store.smaller(None) == ""
