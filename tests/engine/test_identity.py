"""On the real forward: speculation on = off by ids and by logit bits, warm = cold, H11 to H14."""

from __future__ import annotations

import random

import pytest
import torch

from copilotd.engine.drafters.base import Drafter
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest, Sampling, Surroundings
from copilotd.engine.products import nf4_is_fused
from tests.support import engine_checks as checks
from tests.support.engine_checks import CHEAP_DRAFTS, adversaries, carry_on, never, nothing, run_loop
from tests.support.tiny_models import HOLDS, OutlierInt8, runner, source_prompts

V = 256
PROMPTS = 200

fused = pytest.mark.skipif(not nf4_is_fused(), reason="this processor has no fused NF4 kernel")
FREE = [pytest.param("int8"), pytest.param("nf4", marks=fused)]
ALL = [*FREE, pytest.param("fp32"), pytest.param("bf16")]


@pytest.mark.parametrize("hold", ALL)
def test_speculation_changes_neither_ids_nor_logit_bits(hold: str) -> None:
    """Over prompts from real source files: adversarial drafts and the real ones, one after the other."""
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


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_h11_end_token_inside_a_block(k: int) -> None:
    target = runner(HOLDS["fp32"])
    prompt = next(source_prompts(1))
    full = run_loop(target, GenerationRequest(prompt=prompt, max_new_tokens=24), nothing()).ids
    end = full[2]
    engine = Engine(target, runner(HOLDS["fp32"]), context_tokens=400, max_draft_tokens=k, costs=CHEAP_DRAFTS)
    request = GenerationRequest(
        prompt=prompt, max_new_tokens=24, stop_ids=frozenset({end}), speculation="on", slot="s"
    )
    first = engine.generate(request, never, carry_on)
    assert first.ids == full[: full.index(end)]
    assert first.finish == "stop"
    longer = GenerationRequest(prompt=[*prompt, *full[:2], 7], max_new_tokens=12, speculation="on", slot="s")
    warm = engine.generate(longer, never, carry_on).ids
    assert warm == run_loop(target, longer, nothing()).ids


@pytest.mark.parametrize(("target_rows", "draft_rows"), [(128, 120), (120, 136)])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_h12_heads_of_different_size(target_rows: int, draft_rows: int, k: int) -> None:
    """110 real tokens; what lies beyond is padding that nobody may see."""
    target = runner(HOLDS["fp32"], vocabulary=110, rows=target_rows)
    draft = runner(HOLDS["fp32"], vocabulary=110, rows=draft_rows, seed=1)
    engine = Engine(target, draft, context_tokens=200, max_draft_tokens=k, costs=CHEAP_DRAFTS)
    prompt = [i * 37 % 100 + 1 for i in range(12)]
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=1)):
        request = GenerationRequest(prompt=prompt, max_new_tokens=24, sampling=sampling, speculation="on")
        found = engine.generate(request, never, carry_on)
        assert found.counters.drafted["draft"] > 0
        assert max(found.ids) < 110
        if sampling.greedy:
            assert found.ids == run_loop(target, request, nothing()).ids


@pytest.mark.parametrize("k", [1, 3, 5, 8])
@pytest.mark.parametrize("draft_seed", [3, 4])
def test_h13_a_sliding_window_rolls_back_too(k: int, draft_seed: int) -> None:
    """Nearly all rejected and all accepted; then a second request on the first one's prefix."""
    target = runner(HOLDS["fp32"], seed=3, windows=(8, 8))
    draft = runner(HOLDS["fp32"], seed=draft_seed, windows=(8, 8))
    engine = Engine(target, draft, context_tokens=300, max_draft_tokens=k, costs=CHEAP_DRAFTS)
    prompt = next(prompt for prompt in source_prompts(20) if len(prompt) > 40)
    for repeated in ([*prompt], [*prompt, *prompt], [*prompt, *prompt, 9]):
        request = GenerationRequest(
            prompt=repeated,
            surroundings=Surroundings(before=repeated),
            max_new_tokens=24,
            speculation="on",
            slot="s",
        )
        truth = run_loop(target, request, nothing(), max_draft_tokens=0).ids
        assert engine.generate(request, never, carry_on).ids == truth
        whole = runner(HOLDS["fp32"], seed=3)
        assert run_loop(whole, request, nothing(), max_draft_tokens=0).ids != truth  # the window matters
    accepted, drafted = engine.counters.accepted["draft"], engine.counters.drafted["draft"]
    assert accepted == drafted if draft_seed == 3 else accepted < drafted / 4


def test_h14_greedy_settings() -> None:
    target = runner(HOLDS["fp32"])
    engine = Engine(target, runner(HOLDS["fp32"], noise=0.1), context_tokens=300, costs=CHEAP_DRAFTS)
    prompt = next(source_prompts(1))
    greedy = run_loop(target, GenerationRequest(prompt=prompt, max_new_tokens=20), nothing()).ids
    for sampling in (
        Sampling(temperature=0.0, top_p=0.9),
        Sampling(temperature=0.0, top_p=0.0),
        Sampling(temperature=1e-6),
        Sampling(temperature=1.0, top_p=0.0),
    ):
        for speculation in ("on", "on", "off", "auto"):
            request = GenerationRequest(
                prompt=prompt, max_new_tokens=20, sampling=sampling, speculation=speculation
            )
            assert engine.generate(request, never, carry_on).ids == greedy


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
