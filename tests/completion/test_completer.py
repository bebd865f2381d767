"""One completion from document to edit, on a scripted backend. CB-H03, CB-H08."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.completion.completer import Completer
from copilotd.completion.places import Places
from copilotd.config import DaemonSettings, SessionSettings
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.completion.asking import ask, at, never
from tests.support.scripted import Rules, ScriptedBackend

CRLF = "def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        ‸\r\n    return acc\r\n"


def completing(script: Any, **options: Any) -> tuple[Completer, ScriptedBackend]:
    backend = ScriptedBackend(script, **options)
    return Completer(backend), backend


def complete(completer: Completer, marked: str, **changes: Any) -> Completion:
    return completer.complete(ask(marked, **changes), never, None)


def text(completion: Completion) -> str:
    return completion.suggestions[0].text if completion.suggestions else ""


def accept(one: Ask, suggestion: Suggestion, line_end: str = "\n") -> str:
    """As an editor does: in the document's line ends."""
    inserted = suggestion.text.replace("\n", line_end)
    return one.text[: suggestion.start] + inserted + one.text[suggestion.end :]


def idle(completer: Completer) -> int:
    pieces = 0
    while completer.idle(never):
        pieces += 1
        assert pieces < 20, "idle work without end"
    return pieces


class Watched(ScriptedBackend):
    """Goes on with its script where the text stands; counts what it has emitted."""

    def __init__(self, whole: str, **options: Any) -> None:
        super().__init__(**options)
        self._whole = whole
        self.emitted = 0

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        def watched(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
            self.emitted += len(ids)
            return emit(ids, logprobs)

        constraint: Any = request.constraint
        needed = constraint.needed.decode() if constraint else ""
        stands = self.vocabulary.render(request.prompt) + needed
        done = max(n for n in range(len(self._whole) + 1) if stands.endswith(self._whole[:n]))
        self._script = self._whole[done:]
        return super().generate(request, cancelled, watched)


# ---- texts ---------------------------------------------------------------------------------------------------


def test_an_item_is_an_empty_range_and_what_is_missing() -> None:
    completer, _ = completing("urn a + b")
    one = ask("def add(a, b):\n    ret‸\n")
    assert completer.complete(one, never, None).suggestions == [Suggestion(22, 22, "urn a + b")]


def test_windows_line_ends() -> None:
    completer, backend = completing("acc += x\n        print(acc)")
    one = ask(CRLF)
    suggestion = completer.complete(one, never, None).suggestions[0]
    assert "\r" not in suggestion.text
    assert "\r" not in "".join(backend.prompts)
    assert accept(one, suggestion, "\r\n") == (
        "def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        acc += x\r\n        print(acc)\r\n"
        "    return acc\r\n"
    )


def test_mixed_line_ends_outside_the_insertion_stay() -> None:
    completer, _ = completing("\nd = 4")
    one = ask("a = 1\r\nb = 2‸\nc = 3\n")
    suggestion = completer.complete(one, never, None).suggestions[0]
    assert accept(one, suggestion) == "a = 1\r\nb = 2\nd = 4\nc = 3\n"


def test_a_cursor_within_a_line_end_is_before_it() -> None:
    completer, backend = completing("1")
    assert completer.complete(ask("a = \r‸\nb"), never, None).reason != "error"
    assert backend.prompts[-1].count("\n\n") == 0


@pytest.mark.parametrize(
    "output",
    [
        "return a + b<|file_sep|>tests/test_add.py\nimport add",
        "return a + b<|endoftext|><|endoftext|>",
        "return a + b<|repo_name|>demo",
        "<|fim_middle|>return a + b",
        "return a + b<|cursor|>",
    ],
)
def test_markers_as_text_never_reach_the_buffer(output: str) -> None:
    completer, _ = completing(output)
    assert text(complete(completer, "def add(a, b):\n    ‸\n")) == "return a + b"


def test_a_marker_alone_is_no_item() -> None:
    completer, _ = completing("<|endoftext|>")
    completion = complete(completer, "def add(a, b):\n    ‸\n")
    assert completion.suggestions == []
    assert completion.reason


def test_every_control_id_ends_the_text(qwen_like: TokenizerVocabulary) -> None:
    for control in qwen_like.control:
        completer, backend = completing([])
        backend.vocabulary = qwen_like  # type: ignore[assignment]
        completer = Completer(backend)
        backend._script = [*qwen_like.encode("a + b"), control, *qwen_like.encode("never")]
        one = ask("def add(a, b):\n    return (‸\n")
        assert "never" not in text(completer.complete(one, never, None))
        assert backend.requests[-1].stop_ids == qwen_like.control


def test_a_backend_that_does_not_heal_is_not_believed() -> None:
    class Deaf(ScriptedBackend):
        def generate(self, request: Any, cancelled: Any, emit: Any) -> Any:
            from msgspec.structs import replace

            return super().generate(replace(request, constraint=None), cancelled, emit)

    completion = complete(Completer(Deaf("xyz" * 30)), "def add(a, b):\n    ret‸\n")
    assert completion.suggestions == []
    assert completion.explanation.counters.target_steps <= 1


# ---- when to stop ------------------------------------------------------------------------------------------


def test_one_line_in_the_middle_of_a_line() -> None:
    completer, backend = completing("a, b\nmore\nand more\n")
    assert "\n" not in text(complete(completer, "x = f(‸) + 1\n"))
    assert backend.requests[-1].draft_until
    assert backend.requests[-1].max_new_tokens > 100


def test_generation_ends_with_the_line() -> None:
    completer, _ = completing("1\n" + "more\n" * 20)
    completion = complete(completer, "x = ‸")
    assert completion.explanation.counters.target_steps < 10


def test_a_block_after_an_opener() -> None:
    completer, backend = completing("\n    a = 1\n    return a\n\n\nz = 2\n")
    assert text(complete(completer, "def f():‸\n")).startswith("\n    a = 1\n    return a")
    assert not backend.requests[-1].draft_until


def test_multiline_never() -> None:
    completer, _ = completing("a = 1\n    return a\n")
    never_more = SessionSettings(multiline="never")
    assert text(complete(completer, "def f():\n    ‸\n", settings=never_more)) == "a = 1"


def test_comments_off() -> None:
    completer, backend = completing("about")
    completion = complete(completer, "# what is this ‸\n", settings=SessionSettings(comments="off"))
    assert (completion.reason, backend.starts) == ("comments", 0)


def test_what_is_decoded_by_the_deadline_is_answered_and_the_rest_goes_on_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = "a = 1\n    b = 2\n    return a + b"
    for emitted, shown in [(4 + 3, "a ="), (4 + 13, "a = 1"), (4 + 22, "a = 1\n    b = 2")]:
        backend = Watched(block)
        completer = Completer(backend)
        one = ask("def f():\n    ‸\n")
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: float(backend.emitted >= emitted))  # noqa: B023
            assert text(completer.complete(one, never, 1.0)) == shown
        assert completer.idle(never)
        assert backend.starts == 2
        again = completer.complete(one, never, None)
        assert (text(again), backend.starts) == (block, 2)


def test_nothing_decoded_by_the_deadline() -> None:
    completer, _ = completing("1", prefill_delay_ms=60_000)
    completion = completer.complete(ask("x = ‸"), never, time.monotonic() + 0.02)
    assert (completion.suggestions, completion.reason) == ([], "late")


# ---- typed through, joined, echo ---------------------------------------------------------------------------


def test_typing_as_suggested_needs_no_model() -> None:
    completer, backend = completing("turn a + b")
    complete(completer, "def add(a, b):\n    re‸\n")
    for typed, left in [("ret", "urn a + b"), ("return a", " + b"), ("re", "turn a + b")]:
        completion = complete(completer, f"def add(a, b):\n    {typed}‸\n")
        assert completion.typed_through
        assert text(completion) == left
    assert backend.starts == 1


def test_a_closer_that_came_meanwhile_is_not_doubled() -> None:
    completer, backend = completing("foo(bar)")
    complete(completer, "x = ‸\n")
    completion = complete(completer, "x = foo(‸)\n")
    assert completion.typed_through
    assert accept(ask("x = foo(‸)\n"), completion.suggestions[0]) == "x = foo(bar)\n"
    assert backend.starts == 1


def test_a_generation_that_agrees_is_joined_and_goes_on_from_its_rows() -> None:
    backend = Watched("return a + b")
    completer = Completer(backend)
    cancelled = completer.complete(ask("def add(a, b):\n    ‸\n"), lambda: backend.emitted >= 8, None)
    assert (cancelled.reason, cancelled.suggestions) == ("cancelled", [])
    first = backend.requests[-1]
    completion = complete(completer, "def add(a, b):\n    re‸\n")
    assert completion.joined
    assert text(completion) == "turn a + b"
    second = backend.requests[-1]
    assert second.slot == first.slot
    assert len(second.prompt) == len(first.prompt) + 8
    assert second.max_new_tokens == first.max_new_tokens - 8
    assert complete(completer, "def add(a, b):\n    retu‸\n").typed_through
    assert backend.starts == 2


def test_a_join_within_the_healed_bytes_still_begins_with_them() -> None:
    backend = Watched("urn a + b")
    completer = Completer(backend)
    completer.complete(ask("def add(a, b):\n    ret‸\n"), lambda: backend.emitted >= 2, None)
    completion = complete(completer, "def add(a, b):\n    ret‸\n")
    assert completion.joined
    assert text(completion) == "urn a + b"


def test_what_does_not_agree_is_not_joined() -> None:
    backend = Watched("return a + b")
    completer = Completer(backend)
    completer.complete(ask("def add(a, b):\n    ‸\n"), lambda: backend.emitted >= 8, None)
    assert not complete(completer, "def add(a, b):\n    x‸\n").joined
    assert backend.starts == 2


def test_the_rest_of_a_suggestion_is_the_echo_when_the_typist_deviates(
    qwen_like: TokenizerVocabulary,
) -> None:
    completer, backend = completing("total += x")
    complete(completer, "    ‸\n")
    complete(completer, "    sum‸\n")
    echo = backend.vocabulary.decode(backend.requests[-1].echo)
    assert echo.endswith("sum += x")


def test_sessions_never_share() -> None:
    completer, backend = completing(Rules({"client A": "A", "client B": "B"}))
    for client in "AB":
        marked = f"who = 'client {client}'\nprint(‸)\n"
        assert text(complete(completer, marked, client=client)) == client
    assert backend.starts == 2
    assert len({request.slot for request in backend.requests}) == 2
    complete(completer, "who = 'client A'\nprint(‸)\n", client="B")
    assert backend.starts == 3
    assert "client B" not in backend.prompts[-1]


def test_closing_forgets() -> None:
    completer, backend = completing("1")
    for close in (
        lambda: completer.close_document("a", "file:///w/a.py"),
        lambda: completer.close_client("a"),
    ):
        complete(completer, "x = ‸")
        starts = backend.starts
        complete(completer, "x = ‸")
        assert backend.starts == starts
        close()
        complete(completer, "x = ‸")
        assert backend.starts == starts + 1


def test_a_client_that_left_leaves_no_text() -> None:
    completer, _ = completing("1")
    complete(completer, "x = ‸")
    completer.close_client("a")
    assert not completer._prompts.encoder._ids.cache_info().currsize
    assert not completer._documents


# ---- the popup ---------------------------------------------------------------------------------------------


def test_the_popups_entry_is_what_the_text_begins_with() -> None:
    completer, _ = completing("(a)")
    completion = complete(completer, "console.l‸\n", selected=(8, 9, "log"))
    assert completion.suggestions == [Suggestion(9, 9, "og(a)")]


def test_a_long_popup_entry_does_not_overflow_the_context() -> None:
    completer, backend = completing("(a)", context_tokens=128)
    complete(completer, "above = 1\n" * 20 + "c‸\n", selected=(200, 201, "c" + "x" * 200))
    request = backend.requests[-1]
    assert len(request.prompt) + request.max_new_tokens <= 128


def test_a_popup_entry_that_replaces_what_was_typed_gets_nothing() -> None:
    completer, backend = completing("(a)")
    completion = complete(completer, "cl‸\n", selected=(0, 2, "console.log"))
    assert (completion.reason, backend.starts) == ("popup", 0)


# ---- idle time ---------------------------------------------------------------------------------------------


def test_the_place_where_an_accepted_item_lands_is_known_ahead() -> None:
    completer, backend = completing(Rules({"z =": " + 2"}, otherwise="x = 1\n    z = 2"))
    one = ask("def f():\r\n    ‸\r\n")
    shown = completer.complete(one, never, None).suggestions[0]
    completer.accepted("a", shown)
    idle(completer)
    starts = backend.starts
    after = accept(one, shown, "\r\n")
    completion = completer.complete(at(after, after.index("\r\n", shown.start + 8)), never, None)
    assert (text(completion), backend.starts) == (" + 2", starts)
    assert "\r" not in "".join(backend.prompts)


def test_one_acceptance_after_the_other_is_known_ahead() -> None:
    completer, backend = completing(
        Rules({"c =": "\nd = 4", "b =": "\nc = 3", "a =": "\nb = 2"}, otherwise="a = 1")
    )
    one = ask("‸\n")
    shown = completer.complete(one, never, None).suggestions[0]
    for expected in ("\nb = 2", "\nc = 3", "\nd = 4"):
        idle(completer)
        starts = backend.starts
        one = at(accept(one, shown), shown.start + len(shown.text))
        shown = completer.complete(one, never, None).suggestions[0]
        assert (shown.text, backend.starts) == (expected, starts)


def test_work_ahead_that_was_cut_short_goes_on_where_it_was() -> None:
    backend = Watched("x = 1\n    y = 2")
    completer = Completer(backend)
    settings_ = SessionSettings(multiline="never")
    one = ask("def f():\n    ‸\n", settings=settings_)
    shown = completer.complete(one, never, None).suggestions[0]
    assert shown.text == "x = 1"
    seen = backend.emitted
    while completer.idle(lambda: backend.emitted >= seen + 3) and backend.emitted < seen + 3:
        pass
    cut = backend.requests[-1]
    completer.complete(one, never, None)
    idle(completer)
    assert list(backend.requests[-1].prompt[: len(cut.prompt)]) == list(cut.prompt)
    assert len(backend.requests[-1].prompt) == len(cut.prompt) + 3
    landed = at(accept(one, shown), shown.start + len(shown.text), settings=settings_)
    assert text(completer.complete(landed, never, None)) == "\n    y = 2"


def test_another_folder_name_is_another_prompt() -> None:
    completer, backend = completing("zz")
    complete(completer, "x = ‸", repository="one")
    complete(completer, "x = 1 + ‸", repository="two")
    assert "two" in backend.prompts[-1]


def test_idle_work_ends_when_it_is_cancelled_and_has_an_end() -> None:
    completer, _ = completing("x = 1")
    complete(completer, "def f():\n    ‸\n")
    assert completer.idle(lambda: True)
    assert idle(completer) > 0
    assert not completer.idle(never)


def test_idle_without_documents() -> None:
    completer, _ = completing("x")
    assert not completer.idle(never)


def test_the_draft_is_warmed_after_the_first_answer() -> None:
    completer, backend = completing("x = 1")
    complete(completer, "def f():\n    ‸\n")
    assert not backend.warmed
    idle(completer)
    assert [request.slot for request in backend.warmed] == [backend.requests[0].slot]


def test_every_stage_says_its_reason_and_the_parts_are_told() -> None:
    completer, _ = completing("x = 1")
    completion = complete(completer, "import a\n\ndef f():\n    ‸\n")
    stages = {reason.stage for reason in completion.explanation.reasons}
    assert {"anchor", "healing", "prompt", "generate"} <= stages
    assert [part.name for part in completion.explanation.parts] == ["header", "prefix", "suffix", "typed"]
    assert completion.explanation.counters.target_steps > 0


def test_one_of_a_kind_is_said_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Places, "_cost", lambda places, prompt: (1, 0))
    backend = Watched("return", samples=["b", "return"])
    completer = Completer(backend)

    def said(one: Ask, cancelled: Cancelled = never) -> dict[str, str]:
        explanation = completer.complete(one, cancelled, None).explanation
        return {reason.stage: reason.text for reason in explanation.reasons}

    begun = said(ask("import a\n‸\n"), lambda: backend.emitted >= 2)
    assert begun["anchor"] == "anchored anew, 1 token to prefill"
    assert begun["healing"] == "writes 1 token of what was typed again"
    assert said(ask("import a\nr‸\n"))["session"] == "goes on with a generation 1 character back"
    one_more = backend.emitted + 1
    afresh = said(ask("import a\nx = ‸\n"), lambda: backend.emitted >= one_more)
    assert afresh["generate"] == "1 token, then cancelled"
    assert said(ask("import a\nx=‸\n", trigger="invoked"))["alternatives"] == "5 drawn, 1 other found"


def test_settings_of_the_daemon_reach_the_engine() -> None:
    backend = ScriptedBackend("1")
    given_settings = DaemonSettings(temperature=0.7, top_k=5, top_p=0.9, seed=3, speculation="off")
    Completer(backend, given_settings).complete(ask("x = ‸"), never, None)
    request = backend.requests[-1]
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.7, 5, 3)
    assert request.speculation == "off"


@settings(deadline=None)
@given(
    st.text(alphabet="ab_ \t\r\n(){}:é🧪\u0301'<|", max_size=120),
    st.integers(0, 120),
    st.text(alphabet="ab_ \t\r\n(){}é🧪<|", max_size=40),
)
def test_any_item_is_clean(document: str, cursor: int, script: str) -> None:
    cursor = min(cursor, len(document))
    completer, _ = completing(script)
    one = at(document, cursor)
    completion = completer.complete(one, never, None)
    assert bool(completion.suggestions) != bool(completion.reason)
    for suggestion in completion.suggestions:
        assert suggestion.text
        assert "\r" not in suggestion.text
        assert suggestion.start == cursor <= suggestion.end <= len(document)
        assert "\n" not in document[suggestion.start : suggestion.end]
    idle(completer)
    assert completer.complete(one, never, None).suggestions == completion.suggestions


def test_lookup_sees_the_document_in_its_order_and_beyond_the_windows(
    qwen_like: TokenizerVocabulary,
) -> None:
    lines = [f"name_{i} = {i}\n" for i in range(600)]
    backend = ScriptedBackend("1", context_tokens=512)
    backend.vocabulary = qwen_like  # type: ignore[assignment]
    completer = Completer(backend)
    above, below = "".join(lines[:300]), "\n" + "".join(lines[300:])
    completer.complete(ask(f"{above}total = name‸{below}"), never, None)
    first = backend.requests[-1].surroundings
    idle(completer)
    completer.complete(ask(f"{above}total = nam‸{below}"), never, None)
    second = backend.requests[-1].surroundings
    assert (above + "total =").endswith(qwen_like.decode(first.before))
    assert below.startswith(qwen_like.decode(first.after))
    assert qwen_like.decode(second.before) == above + "total ="
    assert qwen_like.decode(second.after) == below


def test_the_draft_models_prompt_is_shorter_and_stays_while_one_types(qwen_like: TokenizerVocabulary) -> None:
    above = "".join(f"name_{i} = {i}\n" for i in range(600))
    backend = ScriptedBackend("1", context_tokens=4096)
    backend.vocabulary = qwen_like  # type: ignore[assignment]
    completer = Completer(backend)
    for typed in ("x", "x =", "x = f(a"):
        completer.complete(ask(f"{above}{typed}‸\n{above}"), never, None)
    heads = []
    fim = qwen_like.fim
    assert fim is not None
    for request in backend.requests:
        draft = list(request.draft_prompt)
        assert 300 < len(draft) < 800 < len(request.prompt)
        middle = draft.index(fim.middle) + 1
        heads.append(draft[:middle])
        assert draft[middle:] == list(request.prompt)[list(request.prompt).index(fim.middle) + 1 :]
    assert heads[1:] == heads[:-1]
