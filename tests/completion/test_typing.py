"""What a keystroke costs, counted over typing with Enter, Backspace and auto-closers."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copilotd.completion.anchor import follow
from copilotd.completion.completer import Completer
from copilotd.completion.window import unix
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.completion.asking import never
from tests.completion.recorded import Split
from tests.completion.typist import CountingBackend, Typist

ABOVE = "import os\n\n\nclass Store:\n" + "".join(
    f"    def get_{i}(self, key):\n        return self._data[key + {i}]\n\n" for i in range(30)
)
BELOW = "\n\n" + "".join(f"def helper_{i}(path):\n    return os.stat(path)\n\n\n" for i in range(30))
KEYS = (
    "def size(self, name):\n"
    "total = 0\n"
    "for path in os.listdir(self._root):\n"
    "if path.startswith(name):\n"
    "totla\b\bal += self.stat(path)[0]\n"
    "\b\b\b\b\b\b\b\breturn [total, {\n"
    '"name": name,\b\b, "x": [1, 2]\n'
    "\b\b\b\b"
)


@pytest.fixture(params=["qwen", "gpt2"])
def vocabulary(
    request: pytest.FixtureRequest, qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary
) -> TokenizerVocabulary:
    return qwen_like if request.param == "qwen" else gpt2_like


def test_prefill_per_keystroke(vocabulary: TokenizerVocabulary) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", vocabulary, context_tokens=4096)
    completer = Completer(backend)
    completer.complete(typist.ask(), never, None)
    head = list(backend.requests[0].prompt)
    if fim := vocabulary.fim:
        head = head[: head.index(fim.middle) + 1]
    for key in KEYS:
        typist.press(key)
        completer.complete(typist.ask(), never, None)
        assert list(backend.requests[-1].prompt[: len(head)]) == head
    counts = backend.prefilled[1:]
    assert len(counts) > 0.9 * len(KEYS)
    assert statistics.median(counts) <= 1
    assert statistics.quantiles(counts, n=20)[-1] <= 4


def test_within_twenty_lines_no_idle_work_prefills_the_suffix_again(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096)
    completer = Completer(backend)
    for key in KEYS:
        typist.press(key)
        completer.complete(typist.ask(), never, None)
        while completer.idle(never):
            pass
    suffix = len(qwen_like.encode(BELOW))
    assert sum(backend.warm_prefilled) < suffix
    assert sum(backend.prefilled[1:]) < suffix


def test_the_anchor_moves_in_idle_time_into_the_other_slot(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096)
    completer = Completer(backend)
    completer.complete(typist.ask(), never, None)
    first = backend.requests[-1].slot
    for i in range(22):
        typist.insert(f"x_{i} = {i}\n    ")
    completer.complete(typist.ask(), never, None)
    assert backend.requests[-1].slot == first
    while completer.idle(never):
        pass
    typist.press("y")
    completer.complete(typist.ask(), never, None)
    assert backend.requests[-1].slot != first
    fim = qwen_like.fim
    assert fim is not None
    typed = list(backend.requests[-1].prompt)
    assert len(typed) - typed.index(fim.middle) < 20, "typed text is short again"
    assert backend.prefilled[-1] <= 4


def test_without_idle_time_the_anchor_moves_when_the_room_for_typing_is_full(
    vocabulary: TokenizerVocabulary,
) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", vocabulary, context_tokens=1024)
    completer = Completer(backend)
    for i in range(120):
        typist.insert(f"x_{i} = {i}\n    ")
        completer.complete(typist.ask(), never, None)
        request = backend.requests[-1]
        assert request.max_new_tokens >= 128
        assert len(request.prompt) + request.max_new_tokens <= 1024
    cold = [count for count in backend.prefilled[1:] if count > 100]
    assert 1 <= len(cold) <= 12


def test_an_interrupted_move_leaves_the_old_place_warm(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096)
    completer = Completer(backend)
    completer.complete(typist.ask(), never, None)
    for i in range(22):
        typist.insert(f"x_{i} = {i}\n    ")
    completer.complete(typist.ask(), never, None)
    for _ in range(4):
        completer.idle(lambda: True)
    typist.press("y")
    completer.complete(typist.ask(), never, None)
    assert backend.requests[-1].slot == backend.requests[0].slot
    assert backend.prefilled[-1] <= 4


def test_edits_far_above_do_not_move_the_prompt(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist("# licence\n" * 3000 + ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=1024)
    completer = Completer(backend)
    completer.complete(typist.ask(), never, None)
    typist.text, typist.cursor = "import sys\n" + typist.text, typist.cursor + len("import sys\n")
    typist.press("y")
    completer.complete(typist.ask(), never, None)
    assert backend.prefilled[-1] <= 4


def test_jump_and_return_is_warm(qwen_like: TokenizerVocabulary) -> None:
    body = "".join(f"def unlike_{i}(a):\n    return a * {i}\n\n\n" for i in range(400))
    there, back = Typist("‸" + body), Typist(body + "x = ‸")
    backend = CountingBackend("§", qwen_like, context_tokens=1024)
    completer = Completer(backend)
    for typist in (back, there):
        typist.press("z")
        completer.complete(typist.ask(), never, None)
    back.text, back.cursor = "z" + back.text, back.cursor + 1
    back.press("z")
    completer.complete(back.ask(), never, None)
    assert backend.prefilled[-1] <= 4


def test_a_cold_place_is_answered_from_a_short_prompt_that_a_long_one_replaces(
    qwen_like: TokenizerVocabulary,
) -> None:
    typist = Typist(ABOVE + "    ‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096, prefill_tokens_per_s=800.0)
    completer = Completer(backend)
    completer.complete(typist.ask(), never, None)
    assert 100 < backend.prefilled[0] <= 250
    short = len(backend.requests[-1].prompt)
    typist.press("x")
    completer.complete(typist.ask(), never, None)
    assert backend.prefilled[-1] <= 4
    starts = backend.starts
    completer.complete(typist.ask(), never, None)
    assert backend.starts == starts, "known to have no answer"
    while completer.idle(never):
        pass
    completer.complete(typist.ask(), never, None)
    assert backend.starts > starts, "asked again with the long prompt"
    typist.press("y")
    completer.complete(typist.ask(), never, None)
    assert len(backend.requests[-1].prompt) > 3 * short
    assert backend.prefilled[-1] <= 4


def test_closers_typed_over_are_told_to_the_model_in_idle_time(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist(ABOVE + "    x = size(‸)" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096)
    completer = Completer(backend)
    for key in "a)":
        typist.press(key)
        completer.complete(typist.ask(), never, None)
    assert backend.prefilled[-1] <= 4
    while completer.idle(never):
        pass
    typist.press(";")
    completer.complete(typist.ask(), never, None)
    prompt, fim = list(backend.requests[-1].prompt), qwen_like.fim
    assert fim is not None
    assert qwen_like.decode(prompt[prompt.index(fim.suffix) + 1 : prompt.index(fim.middle)]) == BELOW


def test_the_window_moves_by_quarters(qwen_like: TokenizerVocabulary) -> None:
    typist = Typist("".join(f"name_{i} = {i}\n" for i in range(800)) + "‸" + BELOW)
    backend = CountingBackend("§", qwen_like, context_tokens=4096)
    completer = Completer(backend)
    fim = qwen_like.fim
    assert fim is not None
    starts = []
    for round_ in range(12):
        for i in range(22):
            typist.insert(f"x_{round_}_{i} = {i}\n")
        typist.insert("y")
        completer.complete(typist.ask(), never, None)
        while completer.idle(never):
            pass
        prompt = list(backend.warmed[-1].prompt)
        prefix = qwen_like.decode(prompt[prompt.index(fim.prefix) + 1 : prompt.index(fim.suffix)])
        assert prefix
        starts.append(typist.text.index(prefix))
        assert typist.text[starts[-1] - 1] == "\n"
    moves = [b - a for a, b in pairwise(starts)]
    tokens = [qwen_like.encode(typist.text[a:b]) for a, b in pairwise(starts)]
    assert 1 <= sum(move > 0 for move in moves) <= len(moves) // 2
    assert all(len(ids) >= 400 for ids in tokens if ids)


ACTIONS = st.one_of(
    st.sampled_from(list("ab._ =()[]{}\"'\n\n\b\b\té🧪")),
    st.tuples(st.just("paste"), st.text(alphabet="xy \n(){}\r", max_size=30)),
    st.tuples(st.just("move"), st.integers(-40, 40)),
    st.tuples(st.just("above"), st.sampled_from(["import os\n", "# §\n"])),
    st.tuples(st.just("idle"), st.integers(0, 3)),
)


@example(actions=[("move", 1), ("idle", 2), "\n"], context=64, script="a.b(a)")
@settings(deadline=None)
@given(
    st.lists(ACTIONS, max_size=30), st.sampled_from([64, 200, 2048]), st.sampled_from(["", "a.b(a)", "()\n"])
)
def test_whatever_is_done_the_prompt_is_the_text_around_the_cursor(
    qwen_like: TokenizerVocabulary, actions: list[str | tuple[str, object]], context: int, script: str
) -> None:
    typist = Typist("import a\r\n\r\n\r\ndef f(x):\r\n    y = ‸\r\n    return y\r\n\r\nz()\r\n")
    backend = CountingBackend(script, qwen_like, context_tokens=context, prefill_tokens_per_s=10.0)
    completer = Completer(backend)
    for action in actions:
        match action:
            case "paste", str(text):
                typist.insert(text)
            case "move", int(by):
                typist.cursor = min(max(typist.cursor + by, 0), len(typist.text))
            case "above", str(text):
                typist.text, typist.cursor = text + typist.text, typist.cursor + len(text)
            case "idle", int(pieces):
                for _ in range(pieces):
                    completer.idle(never)
            case str(key):
                if key != "\b" or typist.cursor:
                    typist.press(key)
        one, starts = typist.ask(), backend.starts
        completion = completer.complete(one, never, None)
        for suggestion in completion.suggestions:
            assert suggestion.text
            assert suggestion.start == one.offset
        if backend.starts == starts:
            continue
        split, request = Split(backend), backend.requests[-1]
        cursor = one.offset - (one.text[one.offset - 1 : one.offset + 1] == "\r\n")
        before, after = unix(one.text[:cursor]), unix(one.text[cursor:])
        assert before.endswith(split.before)
        assert split.before or not before or context == 64
        at_end = len(split.suffix) >= len(after)
        assert follow(before + after, len(before), split.suffix, at_end), (after, split.suffix)
        assert len(request.prompt) + request.max_new_tokens <= context
