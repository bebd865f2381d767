"""What is offered beside the first to somebody who asks by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.completion.completer import DRAWS, Completer
from copilotd.config import DaemonSettings
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.completion.asking import ask, never
from tests.completion.test_with_engine import SHORT, EngineBackend
from tests.support.scripted import ScriptedBackend

DOCUMENT = "def add(a, b):\n    ‸\n"


def completing(*samples: str, **options: Any) -> tuple[Completer, ScriptedBackend]:
    backend = ScriptedBackend("return a + b", samples=samples, **options)
    return Completer(backend), backend


def invoked(marked: str = DOCUMENT, **changes: Any) -> Ask:
    return ask(marked, trigger="invoked", **changes)


def by_hand(completer: Completer, marked: str = DOCUMENT, **changes: Any) -> Completion:
    return completer.complete(invoked(marked, **changes), never, None)


def texts(completion: Completion) -> list[str]:
    return [suggestion.text for suggestion in completion.suggestions]


def test_up_to_three_distinct_ones_the_best_first() -> None:
    completer, backend = completing("return a - b", "return a + b", "return b", "return 4")
    completion = by_hand(completer)
    assert texts(completion) == ["return a + b", "return a - b", "return b"]
    assert len({(one.start, one.end) for one in completion.suggestions}) == 1
    assert backend.starts == 4


def test_unasked_there_is_one() -> None:
    completer, backend = completing("return a - b")
    assert texts(completer.complete(ask(DOCUMENT), never, None)) == ["return a + b"]
    assert backend.starts == 1


def test_they_are_drawn_from_the_targets_law() -> None:
    completer, backend = completing("return a - b", "return b")
    by_hand(completer)
    first, *drawn = backend.requests
    assert first.sampling.greedy
    assert [(one.sampling.temperature, one.sampling.top_k, one.sampling.top_p) for one in drawn] == [
        (1.0, 0, 1.0)
    ] * 2
    assert len({one.sampling.seed for one in drawn}) == 2
    assert all(list(one.prompt) == list(first.prompt) and one.slot == first.slot for one in drawn)


def test_a_temperature_that_is_set_holds_for_them_too() -> None:
    backend = ScriptedBackend("x")
    completer = Completer(backend, DaemonSettings(temperature=0.5, top_p=0.9, seed=7))
    by_hand(completer)
    assert {(one.sampling.temperature, one.sampling.top_p) for one in backend.requests} == {(0.5, 0.9)}
    assert len({one.sampling.seed for one in backend.requests}) == len(backend.requests)


def test_a_sure_model_is_asked_a_few_times_only_and_not_again_at_this_place() -> None:
    completer, backend = completing("return a + b", "return a")
    assert texts(by_hand(completer)) == ["return a + b"]
    assert backend.starts == 1 + DRAWS
    assert texts(by_hand(completer)) == ["return a + b"]
    assert backend.starts == 1 + DRAWS


def test_each_fits_where_it_lands() -> None:
    backend = ScriptedBackend("a)", samples=["b)", "c<|endoftext|>"])
    assert texts(by_hand(Completer(backend), "print(‸)\n")) == ["a", "b", "c"]


def test_what_was_shown_unasked_stays_the_first() -> None:
    completer, backend = completing("return a - b", "return b")
    completer.complete(ask(DOCUMENT), never, None)
    assert texts(by_hand(completer)) == ["return a + b", "return a - b", "return b"]
    assert texts(by_hand(completer)) == ["return a + b", "return a - b", "return b"]
    assert texts(completer.complete(ask(DOCUMENT), never, None)) == ["return a + b"]
    assert backend.starts == 3


def test_typing_as_an_alternative_suggests_needs_no_model() -> None:
    completer, backend = completing("raise ValueError(a)", "return b")
    by_hand(completer)
    typed = completer.complete(ask("def add(a, b):\n    ra‸\n"), never, None)
    assert (texts(typed), typed.typed_through) == (["ise ValueError(a)"], True)
    both = completer.complete(ask("def add(a, b):\n    return ‸\n"), never, None)
    assert texts(both) == ["a + b"]
    assert backend.starts == 3


def test_where_an_accepted_alternative_leads_is_known_ahead() -> None:
    completer, backend = completing("c = a", "return b")
    one = invoked()
    chosen = completer.complete(one, never, None).suggestions[1]
    completer.accepted("a", chosen)
    while completer.idle(never):
        pass
    starts = backend.starts
    assert texts(completer.complete(ask("def add(a, b):\n    c = a‸\n"), never, None))
    assert backend.starts == starts


def test_at_the_deadline_there_are_those_that_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    options: Any = {"record_tokens": True, "record": lambda record: said.append(record["event"])}
    completer, backend = completing("return a - b", "return 3 * b", **options)
    within_the_third = 2 * len("    return a + b") + 10
    monkeypatch.setattr(time, "monotonic", lambda: float(said.count("token") >= within_the_third))
    completion = completer.complete(invoked(), never, 1.0)
    monkeypatch.undo()
    assert texts(completion) == ["return a + b", "return a - b"]
    assert backend.starts == 3
    assert len(texts(by_hand(completer))) == 3


def test_a_cancel_ends_the_drawing() -> None:
    completer, backend = completing("return a - b" * 20)
    looks = iter([False] * 40)
    completer.complete(invoked(), lambda: next(looks, True), None)
    assert backend.starts == 2
    assert texts(completer.complete(ask(DOCUMENT), never, None)) == ["return a + b"]
    assert backend.starts == 2


def test_the_popup_is_kept_to() -> None:
    backend = ScriptedBackend("(a)", samples=["(b)", "(c)"])
    completion = by_hand(Completer(backend), "console.l‸\n", selected=(8, 9, "log"))
    assert completion.suggestions == [Suggestion(9, 9, text) for text in ("og(a)", "og(b)", "og(c)")]


def test_the_first_is_the_same_with_speculation_on_and_off(
    qwen_like: TokenizerVocabulary, sources: list[str]
) -> None:
    """And the others are some of what the model may say: drawing them changes nothing for the first."""
    found = 0
    for source in sources[:4]:
        place = source.index("\n", len(source) // 3) + 1
        marked = source[:place] + "‸" + source[place:]
        plain = Completer(EngineBackend(qwen_like), DaemonSettings(speculation="off"))
        first = plain.complete(ask(marked, settings=SHORT), never, None).suggestions
        completer = Completer(EngineBackend(qwen_like), DaemonSettings(speculation="on"))
        one = replace(ask(marked, settings=SHORT), trigger="invoked")
        suggestions = completer.complete(one, never, None).suggestions
        assert suggestions[:1] == first
        found += len(suggestions) - len(first)
    assert found
