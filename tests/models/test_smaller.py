"""Which pair comes next when memory does not suffice."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd.models import load
from copilotd.models.catalogue import Entry, named


@pytest.mark.parametrize(
    ("model", "on_disk", "expected"),
    [
        ("Qwen2.5-Coder-32B", {"Qwen2.5-Coder-1.5B", "starter"}, "Qwen2.5-Coder-1.5B"),
        ("Qwen2.5-Coder-1.5B", {"Qwen2.5-Coder-32B", "embedded", "embedded-draft"}, "embedded"),
        ("embedded", {"embedded", "embedded-draft"}, ""),
        ("Qwen2.5-Coder-0.5B", set(), ""),
    ],
)
def test_the_largest_smaller_target_on_disk(
    monkeypatch: pytest.MonkeyPatch, model: str, on_disk: set[str], expected: str
) -> None:
    def found(entry: Entry) -> Path | None:
        return Path("/somewhere") if entry.name in on_disk else None

    monkeypatch.setattr(load, "_on_disk", found)
    assert load._smaller(load.Place(Path("/x"), model, named(model))) == expected


def test_an_unknown_model_has_none() -> None:
    assert load._smaller(load.Place(Path("/x"), "mine")) == ""
