"""Models copilotd knows by name, and the folders of those that come with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from copilotd.models import starter


class Entry(Struct, frozen=True, kw_only=True):
    """One model. `hub` is empty for a model that is not on the hub."""

    name: str
    hub: str = ""
    parameters: int
    licence: str
    draft: str | None = None
    """the name of the draft that goes with it"""
    target: bool = True
    """whether `auto` may choose it as a target"""


CATALOGUE = (
    Entry(
        name="Qwen2.5-Coder-32B",
        hub="Qwen/Qwen2.5-Coder-32B",
        parameters=32_764_000_000,
        licence="Apache-2.0",
        draft="Qwen2.5-Coder-0.5B",
    ),
    Entry(
        name="Qwen2.5-Coder-1.5B",
        hub="Qwen/Qwen2.5-Coder-1.5B",
        parameters=1_544_000_000,
        licence="Apache-2.0",
        draft="Qwen2.5-Coder-0.5B",
    ),
    Entry(
        name="Qwen2.5-Coder-0.5B", hub="Qwen/Qwen2.5-Coder-0.5B", parameters=494_000_000, licence="Apache-2.0"
    ),
    Entry(name="starter", parameters=134_515_000, licence="Apache-2.0"),
    Entry(name="embedded", parameters=6_820_000, licence="Apache-2.0", draft="embedded-draft"),
    Entry(name="embedded-draft", parameters=620_000, licence="Apache-2.0", target=False),
)


def named(name: str) -> Entry | None:
    """The entry of this name or hub id, whatever its case."""
    wanted = name.casefold()
    return next(
        (entry for entry in CATALOGUE if wanted and wanted in (entry.name.casefold(), entry.hub.casefold())),
        None,
    )


def embedded_folder(role: Literal["target", "draft"]) -> Path:
    return Path(__file__).parent / "embedded" / role


def shipped_folder(entry: Entry) -> Path | None:
    """Where a model that is not from the hub lies, if it is there or not."""
    return {
        "starter": starter.folder(),
        "embedded": embedded_folder("target"),
        "embedded-draft": embedded_folder("draft"),
    }.get(entry.name)
