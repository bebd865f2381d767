"""More lines only while the model is sure, from its log-probabilities to the item."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from copilotd.completion.ask import Completion
from copilotd.completion.completer import Completer
from copilotd.completion.writing import SURE, Writing
from copilotd.config import SessionSettings
from tests.completion.asking import ask, never
from tests.completion.test_completer import Watched
from tests.support.scripted import ScriptedBackend

DOCUMENT = "def total(rows):\n    ‸\n"
BODY = "result = 0\n    for row in rows:\n        result += row\n    return result"
SECOND = "w"
"""doubts begin in the second line"""
FIRST = "u"


def completing(**options: Any) -> tuple[Completer, ScriptedBackend]:
    backend = ScriptedBackend(BODY, **options)
    return Completer(backend), backend


def text(completion: Completion) -> str:
    return completion.suggestions[0].text if completion.suggestions else ""


def test_only_lines_the_model_is_sure_of_are_shown_and_decoding_ends_there() -> None:
    completer, _ = completing(doubts=SECOND)
    completion = completer.complete(ask(DOCUMENT), never, None)
    assert text(completion) == "result = 0"
    assert completion.explanation.counters.target_steps == len("    result = 0\n    for row")
    assert "postprocess.sure" in [reason.stage for reason in completion.explanation.reasons]


def test_a_sure_model_is_shown_whole() -> None:
    completer, _ = completing()
    assert text(completer.complete(ask(DOCUMENT), never, None)) == BODY


def test_doubts_in_the_first_line_still_show_it() -> None:
    completer, _ = completing(doubts=FIRST)
    assert text(completer.complete(ask(DOCUMENT), never, None)) == "result = 0"


def test_who_always_wants_several_lines_gets_them() -> None:
    completer, _ = completing(doubts=SECOND)
    always = SessionSettings(multiline="always")
    assert text(completer.complete(ask(DOCUMENT, settings=always), never, None)) == BODY


def test_a_backend_without_probabilities_counts_as_sure() -> None:
    class Silent(ScriptedBackend):
        def generate(self, request: Any, cancelled: Any, emit: Any) -> Any:
            return super().generate(request, cancelled, lambda ids, _=(): emit(ids))

    completer = Completer(Silent(BODY, doubts=SECOND))
    assert text(completer.complete(ask(DOCUMENT), never, None)) == BODY


def test_typing_on_in_what_is_shown_needs_no_model() -> None:
    completer, backend = completing(doubts=SECOND)
    completer.complete(ask(DOCUMENT), never, None)
    typed = completer.complete(ask("def total(rows):\n    result ‸\n"), never, None)
    assert (text(typed), typed.typed_through, backend.starts) == ("= 0", True, 1)


def test_a_generation_that_is_joined_beyond_the_sure_lines_is_begun_anew() -> None:
    for seen, typed, wanted, starts in [
        ("resul", "res", "ult = 0", 2),
        ("result = 0\n    for", "result = 0\n    f", "or row in rows:", 3),
    ]:
        backend = Watched(BODY, doubts=SECOND)
        completer = Completer(backend)
        completer.complete(ask(DOCUMENT), lambda: backend.emitted >= len("    " + seen), None)  # noqa: B023
        completion = completer.complete(ask(DOCUMENT.replace("‸", typed + "‸")), never, None)
        assert (text(completion), backend.starts) == (wanted, starts)
        assert completion.joined == (starts == 2)


@given(st.lists(st.floats(-3.0, 0.0), max_size=30), st.data())
def test_the_doubts_do_not_depend_on_the_rounds(logprobs: list[float], data: st.DataObject) -> None:
    """Speculation changes how many ids a round brings, and must not change what is shown."""
    ids = list(BODY.encode())[: len(logprobs)]
    whole, parts = written(), written()
    whole.add(ScriptedBackend().vocabulary, ids, logprobs)
    at = 0
    while at < len(ids):
        end = data.draw(st.integers(at + 1, len(ids)))
        parts.add(ScriptedBackend().vocabulary, ids[at:end], logprobs[at:end])
        at = end
    assert (whole.doubt, whole.judged) == (parts.doubt, parts.judged)
    assert (whole.doubt is None) == (sum(logprobs) >= SURE)


def written() -> Writing:
    completer, _ = completing()
    completer.complete(ask(DOCUMENT), never, None)
    [document] = completer._documents.values()
    assert document.writing is not None
    return document.writing.drawn(document.writing.sampling)
