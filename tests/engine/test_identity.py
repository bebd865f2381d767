"""On the real forward: speculation on = off by ids and by logit bits, warm = cold."""

from __future__ import annotations

import random

import pytest
import torch

from copilotd.engine.drafters.base import Drafter
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest, Surroundings
from tests.support import engine_checks as checks
from tests.support.engine_checks import CHEAP_DRAFTS, adversaries, carry_on, nothing, run_loop
from tests.support.kernels import holds_here
from tests.support.tiny_models import FREE, HOLDS, OutlierInt8, runner, source_prompts

V = 256
PROMPTS = 200


@pytest.mark.parametrize("hold", HOLDS)
def test_speculation_changes_neither_ids_nor_logit_bits(hold: str) -> None:
    """Over prompts from real source files: adversarial drafts and the real ones, one after the other."""
    holds_here(hold)
    target = runner(HOLDS[hold])
    hybrid = checks.hybrid(target, runner(HOLDS[hold], noise=0.1))
    distinct = set()
    for i, prompt in enumerate(source_prompts(PROMPTS)):
        request = GenerationRequest(
            prompt=prompt,
            surroundings=Surroundings(before=prompt),
            max_new_tokens=10,
            speculation="on",
            slot="identity",
        )
        truth = run_loop(target, request, nothing(), max_draft_tokens=0).ids
        drafters: dict[str, Drafter] = {**adversaries(truth, V, i), "hybrid": hybrid}
        names = sorted(drafters)
        chosen = {name: drafters[name] for name in (names[i % len(names)], names[(i + 3) % len(names)])}
        checks.check_identity(target, request, chosen)
        distinct.add(tuple(truth))
    assert len(distinct) > PROMPTS * 0.9  # restless enough to prove something


@pytest.mark.parametrize("hold", FREE)
def test_warm_is_cold_bit_for_bit(hold: str) -> None:
    """Any history of typing, Enter, Backspace, jumps, cancels and drafts leaves the cache of a fresh run."""
    holds_here(hold)
    rng = random.Random(5)
    target = runner(HOLDS[hold], chunk=24)
    engine = Engine(target, runner(HOLDS[hold], noise=0.2), context_tokens=400, costs=CHEAP_DRAFTS)
    text = next(prompt for prompt in source_prompts(50, 400) if len(prompt) > 200)
    cursor = len(text) - 80
    for _ in range(40):
        move = rng.random()
        if move < 0.5:
            cursor = min(cursor + 1, len(text))
        elif move < 0.7:
            cursor = max(cursor - rng.randrange(1, 4), 1)
        else:
            cursor = rng.randrange(1, len(text))
        prompt = text[:cursor]
        patience = iter(range(rng.randrange(1, 20)))
        request = GenerationRequest(
            prompt=prompt,
            surroundings=Surroundings(before=prompt, after=text[cursor:]),
            max_new_tokens=rng.randrange(1, 12),
            slot=("d", "main"),
            speculation=rng.choice(["on", "on", "off"]),
        )
        found = engine.generate(request, lambda patience=patience: next(patience, None) is None, carry_on)
        cache = engine._slots.peek(("d", "main"))
        assert cache is not None
        checks.check_cache(target, cache, [*prompt, *found.ids], torch.equal)


@pytest.mark.parametrize("hold", ["fp32", "bf16"])
def test_at_a_fixed_shape_the_cache_is_close(hold: str) -> None:
    target = runner(HOLDS[hold])
    prompt = next(source_prompts(1))
    request = GenerationRequest(prompt=prompt, max_new_tokens=30, speculation="on")
    truth = run_loop(target, request, nothing()).ids
    for name, drafter in adversaries(truth, V, 1).items():
        cache = target.new_cache(400)
        found = run_loop(target, request, drafter, cache=cache)
        checks.check_cache(
            target, cache, [*prompt, *found.ids], lambda a, b: torch.allclose(a, b, atol=1e-2), name
        )


def outliers(threshold: float) -> None:
    """Identity of LLM.int8 at this threshold."""
    target = runner(lambda weight: OutlierInt8(weight, threshold))
    for i, prompt in enumerate(source_prompts(6)):
        request = GenerationRequest(prompt=prompt, max_new_tokens=10)
        truth = run_loop(target, request, nothing(), max_draft_tokens=0).ids
        checks.check_identity(target, request, adversaries(truth, V, i))


def test_llm_int8_is_row_free_only_without_outlier_columns() -> None:
    """Mutation: at the default threshold of LLM.int8 the columns are chosen over all rows of the step."""
    outliers(0.0)
    with pytest.raises(AssertionError):
        outliers(6.0)
