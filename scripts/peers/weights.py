"""One pair of models in every form a contender wants."""

from __future__ import annotations

from pathlib import Path

import torch
from faithful.embedded import EMBEDDED, is_fresh, ready
from faithful.widening import dimensions, widen
from msgspec import Struct

from copilotd.models.configuration import read_configuration
from peers.conversion import to_gguf
from peers.llama import quantised


class Weights(Struct, frozen=True):
    """Folders in the hub's layout, and where what is made of them lies."""

    target: Path
    draft: Path | None
    made: Path

    def folder(self, role: str) -> Path:
        folder = self.target if role == "target" else self.draft
        assert folder is not None
        return folder

    def floating(self, role: str) -> Path:
        """The model in floats, which transformers can read: copilotd's int8 by row it cannot."""
        folder = self.folder(role)
        configuration = read_configuration(folder)
        if not configuration.int8_rows:
            return folder
        into = self.made / f"{role}-embedded-floating"
        if not is_fresh(into, folder):
            widen(folder, into, dimensions(configuration), 0, torch.float32, lambda name, share: None)
        return into

    def gguf(self, role: str, kind: str) -> Path:
        """The model for llama.cpp. Raises MissingPeer."""
        folder = self.folder(role)
        name = f"{role}-embedded" if folder.parent == EMBEDDED else folder.name
        file = self.made / f"{name}-BF16.gguf"
        if not is_fresh(file, folder):
            to_gguf(folder, file)
        return quantised(file, kind)


def weights(target: str, draft: str, cache: Path) -> Weights:
    """By shape: `embedded`, or the embedded pair widened to a shape of Qwen's; `draft` may be `none`.

    What is missing, or older than the pair's weights, is made. Raises OSError where the disk is full.
    """
    cache.mkdir(parents=True, exist_ok=True)
    return Weights(
        _folder("target", target, cache), None if draft == "none" else _folder("draft", draft, cache), cache
    )


def _folder(role: str, shape: str, cache: Path) -> Path:
    if shape == "embedded":
        return EMBEDDED / role
    return ready(role, shape, cache)
