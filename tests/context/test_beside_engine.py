"""Engine steps with indexing in progress against steps without, in windows in turn on one machine.

The bound is loose: a crowded machine disturbs both kinds of window. scripts/measure_index takes the figure.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from copilotd.config import DaemonSettings
from copilotd.context.process import ContextProcess
from copilotd.models.catalogue import embedded_folder
from copilotd.models.load import Place, load_model

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from edits.beside import Beside, engine_steps, processor_s


@pytest.mark.slow
def test_indexing_leaves_the_engine_its_steps(tmp_path: Path) -> None:
    import torch

    chance = random.Random(1)
    words = [f"name{number}" for number in range(500)]
    root = tmp_path / "work"
    root.mkdir()
    for number in range(1500):
        lines = (" ".join(chance.choices(words, k=12)) for _ in range(120))
        (root / f"file{number}.py").write_text("\n".join(lines))
    torch.set_num_threads(1)
    place = Place(embedded_folder("target"), "embedded")
    model = load_model(place, DaemonSettings(), torch.device("cpu"), lambda *told: None, draft=False)
    cache = model.runner.new_cache(300)

    def step() -> None:
        if len(cache.ids) >= 256:
            cache.truncate(200)
        model.runner.step(cache, [0], 1)

    async def beside() -> Beside:
        context = ContextProcess(tmp_path, lambda text: None)
        await context.begin(str(place.folder), ())
        context.folders("c", (str(root),))
        pid = context.pid
        assert pid is not None
        while processor_s(pid) < 0.5:  # it has started
            await asyncio.sleep(0.05)
        found = engine_steps(step, pid, windows=5, window_s=0.6)
        assert not context.progress.settled
        await context.close()
        return found

    found = asyncio.run(beside())
    assert found.share >= 0.5, found
