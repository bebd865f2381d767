"""Handed cases H11 to H14 on their own toy: a Qwen2 of two layers from transformers, weights times 12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from copilotd.config import DaemonSettings
from copilotd.engine.engine import Engine
from copilotd.engine.generation import GenerationRequest, Sampling, Surroundings
from copilotd.engine.runner import Runner
from copilotd.models.load import load_pair
from tests.support.engine_checks import CHEAP_DRAFTS, carry_on, never
from tests.support.toy_checkpoints import write_model

REFERENCE_24 = [
    70, 24, 36, 117, 4, 1, 85, 119, 47, 27, 26, 69, 23, 83, 26, 21, 46, 107, 55, 18, 54, 27, 75, 5,
]  # fmt: skip
"""greedy, seed 0, as handed with the case"""


def toy(seed: int, **keys: Any) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "eos_token_id": None,
        "pad_token_id": 0,
        "vocab_size": 120,
    }
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**shape | keys)).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(12.0)
    return model


def prompt() -> list[int]:
    torch.manual_seed(7)
    ids: list[int] = torch.randint(1, 100, (1, 12))[0].tolist()
    return ids


@pytest.fixture(scope="module")
def make_runner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[tuple[Any, ...], Runner] = {}

    def make(seed: int, entries: int = 0, **keys: Any) -> Runner:
        key = (seed, entries, *sorted(keys.items()))
        if key not in made:
            folder: Path = write_model(tmp_path_factory.mktemp("toy") / "model", toy(seed, **keys))
            settings = DaemonSettings(model=str(folder), draft="none", quantisation="fp32", device="cpu")
            made[key] = load_pair(settings, lambda what, done, total: None).target
            if entries:
                made[key].vocabulary = entries
        return made[key]

    return make


def engine(target: Runner, draft: Runner | None, k: int) -> Engine:
    return Engine(target, draft, context_tokens=200, max_draft_tokens=k, costs=CHEAP_DRAFTS)


def plain(target: Runner, ids: list[int], **options: Any) -> list[int]:
    request = GenerationRequest(prompt=ids, **{"max_new_tokens": 24, "speculation": "off", **options})
    return engine(target, None, 1).generate(request, never, carry_on).ids


# ---- H11: the end token in the middle of a drafted block -------------------------------------------------


def test_the_reference_is_the_handed_one(make_runner: Any) -> None:
    assert plain(make_runner(0), prompt()) == REFERENCE_24


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_end_token_ends_it_wherever_it_is_accepted(make_runner: Any, k: int) -> None:
    target = make_runner(0)
    reference = plain(target, prompt())
    for at in range(9):
        subject = engine(target, make_runner(0), k)
        end = reference[at]
        request = GenerationRequest(
            prompt=prompt(), max_new_tokens=24, stop_ids=frozenset({end}), speculation="on", slot="s"
        )
        streamed: list[int] = []
        found = subject.generate(request, never, lambda ids, _=(), out=streamed: bool(out.extend(ids)))
        assert found.finish == "stop"
        assert found.ids == streamed == reference[: reference.index(end)]
        following = [*prompt(), *reference[:2], 99]
        request = GenerationRequest(prompt=following, max_new_tokens=24, speculation="on", slot="s")
        assert subject.generate(request, never, carry_on).ids == plain(target, following)


# ---- H12: one tokenizer of 110 entries, tables of different sizes ----------------------------------------


@pytest.mark.parametrize(("target_rows", "draft_rows"), [(128, 120), (120, 136)])
@pytest.mark.parametrize("k", range(1, 9))
def test_padding_rows_are_never_seen(make_runner: Any, target_rows: int, draft_rows: int, k: int) -> None:
    target = make_runner(0, 110, vocab_size=target_rows)
    subject = engine(target, make_runner(1, 110, vocab_size=draft_rows), k)
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=5)):
        request = GenerationRequest(prompt=prompt(), max_new_tokens=24, sampling=sampling, speculation="on")
        found = subject.generate(request, never, carry_on)
        assert found.counters.drafted["draft"] > 0
        assert len(found.ids) == 24
        assert max(found.ids) < 110
        if sampling.greedy:
            assert found.ids == plain(target, prompt())


# ---- H13: rejected drafts under a sliding window ---------------------------------------------------------

WINDOW = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}


@pytest.mark.parametrize("k", [1, 3, 5, 8])
@pytest.mark.parametrize("draft_seed", [3, 4])
def test_a_sliding_window_rolls_back(make_runner: Any, k: int, draft_seed: int) -> None:
    target = make_runner(3, **WINDOW)
    subject = engine(target, make_runner(draft_seed, **WINDOW), k)
    reference = plain(target, prompt())
    assert reference != plain(make_runner(3), prompt()), "the window does nothing"
    for ids in (prompt(), [*prompt(), *reference[:4]]):
        request = GenerationRequest(prompt=ids, max_new_tokens=24, speculation="on", slot="s")
        assert subject.generate(request, never, carry_on).ids == plain(target, ids)
    accepted, drafted = subject.counters.accepted["draft"], subject.counters.drafted["draft"]
    assert accepted == drafted if draft_seed == 3 else accepted < drafted / 4


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_lookup_under_a_sliding_window(make_runner: Any, k: int) -> None:
    target = make_runner(3, **WINDOW)
    twice = [*prompt(), *prompt()]
    request = GenerationRequest(
        prompt=twice, surroundings=Surroundings(before=twice), max_new_tokens=24, speculation="on"
    )
    found = engine(target, None, k).generate(request, never, carry_on)
    assert found.counters.drafted["lookup"] > 0
    assert found.ids == plain(target, twice)


# ---- H14: temperature 0 and edge values of top_p ---------------------------------------------------------


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0),
        Sampling(temperature=0.0, top_p=0.9),
        Sampling(temperature=0, top_p=0),
        Sampling(temperature=1e-06, top_p=1),
        Sampling(temperature=1.0, top_p=0),
        Sampling(temperature=1.0, top_k=1),
    ],
)
def test_edge_values_are_greedy_twice_in_a_row(make_runner: Any, sampling: Sampling) -> None:
    target = make_runner(0)
    for draft in (None, make_runner(1), make_runner(0)):
        subject = engine(target, draft, 8)
        request = GenerationRequest(prompt=prompt(), max_new_tokens=24, sampling=sampling, speculation="on")
        for _ in range(2):
            assert subject.generate(request, never, carry_on).ids == plain(target, prompt())
