"""Whether two models compute the same logits over real text."""

from __future__ import annotations

from pathlib import Path

import torch
from msgspec import Struct

from copilotd.config import DaemonSettings
from copilotd.models.configuration import read_configuration
from copilotd.models.load import Place, load_model


class Difference(Struct, frozen=True, kw_only=True):
    """Of the wide model's logits from the small one's."""

    positions: int
    largest: float
    """of any logit"""
    spread: float
    """the standard deviation of the small model's own logits, to judge it by"""
    choices: int
    """positions at which the best id is another, the added ids among the candidates"""


def logits(folder: Path, ids: list[int], quantisation: str = "fp32") -> torch.Tensor:
    """float32 [ids, vocabulary], added ids included, by copilotd's own forward on the CPU."""
    settings = DaemonSettings(device="cpu", quantisation=quantisation)
    model = load_model(
        Place(folder, folder.name), settings, torch.device("cpu"), lambda what, done, total: None, draft=False
    )
    runner = model.runner
    runner.vocabulary = read_configuration(folder).vocab_size  # the added ids too
    cache = runner.new_cache(len(ids) + runner.chunk)
    parts = [ids[start : start + runner.chunk] for start in range(0, len(ids), runner.chunk)]
    return torch.cat([runner.step(cache, part, len(part)) for part in parts])


def compare(small: Path, wide: Path, ids: list[int]) -> Difference:
    before, after = logits(small, ids), logits(wide, ids)
    entries = before.shape[1]
    return Difference(
        positions=len(ids),
        largest=float((after[:, :entries] - before).abs().max()),
        spread=float(before.std()),
        choices=int((before.argmax(1) != after.argmax(1)).sum()),
    )
