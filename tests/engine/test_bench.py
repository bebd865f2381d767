"""The decode bench's arithmetic, on a toy."""

from __future__ import annotations

import pytest

from copilotd.engine import bench
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest
from tests.support.engine_checks import CHEAP_DRAFTS
from tests.support.toy_runner import ToyRunner, hashed


def test_it_compares_the_same_text() -> None:
    law = hashed(40, 1)
    engine = Engine(ToyRunner(law, 40), ToyRunner(law, 40), context_tokens=200, costs=CHEAP_DRAFTS)
    requests = [GenerationRequest(prompt=[i, 2, 3], max_new_tokens=40) for i in range(4)]
    found = bench.decode(engine, requests)
    assert found.identical
    assert found.acceptance == 1.0
    assert found.tokens_per_step == pytest.approx(1 + 8 * 0.8, abs=1.5)
    assert found.speedup == pytest.approx(found.speculative_tokens_per_s / found.plain_tokens_per_s)
    assert found.step_ms["1"] == 10.0
    assert found.draft_step_ms == 0.2
    assert found.ceiling == pytest.approx(65 * 10 / 40)


def test_answers_too_short_to_time_are_refused() -> None:
    engine = Engine(ToyRunner(hashed(40, 1), 40), context_tokens=200, costs=CHEAP_DRAFTS)
    with pytest.raises(ValueError, match="long enough"):
        bench.decode(engine, [GenerationRequest(prompt=[1], max_new_tokens=1)])


def test_the_read_bandwidth_is_a_speed() -> None:
    assert bench.read_bandwidth("cpu") > 1e8
