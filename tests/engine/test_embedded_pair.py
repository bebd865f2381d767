"""The pair that comes with the package, on real source files: drafts help, and change nothing."""

from __future__ import annotations

import pytest

from copilotd.cli.bench import cut_prompts, standard_library
from copilotd.config import DaemonSettings
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest
from copilotd.models.load import load_pair
from tests.support.engine_checks import CHEAP_DRAFTS, carry_on, never
from tests.support.kernels import loads_here


@pytest.mark.parametrize("quantisation", ["int8", "nf4"])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_it_writes_the_same_with_and_without_speculation(kernels: str, quantisation: str) -> None:
    loads_here(quantisation, kernels)
    settings = DaemonSettings(model="embedded", quantisation=quantisation, device="cpu", kernels=kernels)
    pair = load_pair(settings, lambda what, done, total: None)
    assert pair.identity.speculation
    assert pair.identity.cache
    assert pair.draft is not None
    engine = Engine(pair.target, pair.draft, context_tokens=600, costs=CHEAP_DRAFTS)
    for cut in cut_prompts(standard_library(), pair.vocabulary, 10, 20, 500):
        request = {"prompt": cut.prompt, "surroundings": cut.surroundings, "max_new_tokens": 20}
        off, on = (
            engine.generate(
                GenerationRequest(**request, slot=("d", speculation), speculation=speculation),
                never,
                carry_on,
            )
            for speculation in ("off", "on")
        )
        assert on.ids == off.ids
        assert on.logprobs == off.logprobs
    assert sum(engine.counters.accepted.values()) > 20
