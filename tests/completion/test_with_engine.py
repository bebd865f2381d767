"""Completion on the real engine with a toy model: what is counted there, and that drafts change nothing."""

from __future__ import annotations

import random
import statistics
from collections.abc import Hashable

import pytest

from copilotd.backends.base import Description
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, SessionSettings
from copilotd.engine.engine import Engine
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.completion.asking import at, never
from tests.completion.typist import Typist
from tests.support.engine_checks import CHEAP_DRAFTS
from tests.support.toy_runner import ToyRunner, hashed

SHORT = SessionSettings(max_new_tokens=16)


class EngineBackend:
    """The engine as the local backend uses it."""

    name = "toy"
    prefill_tokens_per_s = 1e6

    def __init__(self, vocabulary: TokenizerVocabulary, noise: float = 0.2) -> None:
        def runner(noise: float) -> ToyRunner:
            law = hashed(vocabulary.size, 3, order=2, noise=noise)
            return ToyRunner(law, vocabulary.size, max_tokens=4096, chunk=64)

        self.vocabulary = vocabulary
        self.engine = Engine(
            runner(0.0), runner(noise), context_tokens=2048, costs=CHEAP_DRAFTS, kv_budget=1 << 20
        )
        self.context_tokens = self.engine.context_tokens

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        return self.engine.generate(request, cancelled, emit)

    def forget(self, document: Hashable) -> None:
        self.engine.forget(document)

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        return self.engine.warm(request, cancelled)

    def describe(self) -> Description:
        return Description()

    def shrink(self) -> bool:
        return self.engine.shrink()

    def close(self) -> None: ...


@pytest.fixture(params=["qwen", "gpt2"])
def vocabulary(
    request: pytest.FixtureRequest, qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary
) -> TokenizerVocabulary:
    return qwen_like if request.param == "qwen" else gpt2_like


def test_the_text_is_the_same_with_speculation_on_and_off(
    vocabulary: TokenizerVocabulary, sources: list[str]
) -> None:
    chance = random.Random(5)
    completers = [
        Completer(EngineBackend(vocabulary), DaemonSettings(speculation=speculation))
        for speculation in ("on", "off")
    ]
    texts = []
    for source in sources:
        for _ in range(5):
            one = at(source, chance.randrange(1, len(source)), settings=SHORT)
            on, off = (completer.complete(one, never, None) for completer in completers)
            assert (on.suggestions, on.reason) == (off.suggestions, off.reason)
            texts.append(on.suggestions)
    assert sum(map(bool, texts)) > len(texts) / 2
    assert completers[0]._backend.engine.counters.accepted  # type: ignore[attr-defined]
    assert not completers[1]._backend.engine.counters.drafted  # type: ignore[attr-defined]


def test_the_model_is_as_sure_with_speculation_on_as_off(
    qwen_like: TokenizerVocabulary, sources: list[str]
) -> None:
    """On empty lines, where several lines may be offered: the same lines, whatever the rounds brought."""
    chance = random.Random(6)
    completers = [
        Completer(EngineBackend(qwen_like), DaemonSettings(speculation=speculation))
        for speculation in ("on", "off")
    ]
    stages = []
    for source in sources * 2:
        place = source.index("\n", chance.randrange(len(source) - 200)) + 1
        one = at(source[:place] + "\n" + source[place:], place, settings=SessionSettings(max_new_tokens=40))
        on, off = (completer.complete(one, never, None) for completer in completers)
        assert (on.suggestions, on.reason) == (off.suggestions, off.reason)
        stages += [reason.stage for reason in on.explanation.reasons]
    assert "postprocess.sure" in stages


def test_what_drafters_proposed_is_explained(qwen_like: TokenizerVocabulary, sources: list[str]) -> None:
    completer = Completer(EngineBackend(qwen_like), DaemonSettings(speculation="on"))
    shown = 0
    for source in sources:
        explanation = completer.complete(
            at(source, len(source) // 2, settings=SHORT), never, None
        ).explanation
        assert {source for draft in explanation.drafts for source in draft.source.split("+")} == {
            source for source, number in explanation.counters.drafted.items() if number
        }
        shown += any(draft.accepted for draft in explanation.drafts)
    assert shown


def test_a_keystroke_costs_what_it_types(vocabulary: TokenizerVocabulary, sources: list[str]) -> None:
    place = sources[0].index("\n", len(sources[0]) // 2) + 1
    typist = Typist(sources[0][:place] + "‸" + sources[0][place:])
    backend = EngineBackend(vocabulary)
    completer = Completer(backend)
    counts = []
    for key in "def size(self):\nreturn len(selg\bf.items) + {1: [2\n]\b\b\b\b\n\n":
        typist.press(key)
        one = at(typist.text, typist.cursor, settings=SHORT)
        counters = completer.complete(one, never, None).explanation.counters
        if counters.target_steps:
            counts.append(counters.prefill_tokens)
        while completer.idle(never):
            pass
    assert counts.pop(0) > 500
    assert len(counts) > 30
    assert statistics.median(counts) <= 1
    assert statistics.quantiles(counts, n=20)[-1] <= 4


def test_a_cancelled_generation_goes_on_with_no_prefill(vocabulary: TokenizerVocabulary) -> None:
    backend = EngineBackend(vocabulary)
    whole = Completer(EngineBackend(vocabulary)).complete(at("def f(x):\n    ", 14), never, None)
    completer = Completer(backend)
    looks = iter([False] * 4)
    completer.complete(at("def f(x):\n    ", 14), lambda: next(looks, True), None)
    again = completer.complete(at("def f(x):\n    ", 14), never, None)
    assert again.joined
    assert again.suggestions == whole.suggestions
    assert again.explanation.counters.prefill_tokens <= 1
