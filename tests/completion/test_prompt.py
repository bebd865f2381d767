"""What the model is given: CB-H03, H09, H17 (empty document), H29 (large documents)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from copilotd.completion.ask import Ask, Snippet
from copilotd.completion.completer import Completer
from copilotd.completion.window import unix
from copilotd.config import SessionSettings
from copilotd.models.tokenizer import TokenizerVocabulary
from copilotd.models.vocabulary import Vocabulary
from tests.completion.asking import ask, at, never
from tests.completion.recorded import Split
from tests.completion.typist import CountingBackend
from tests.support.scripted import ByteVocabulary, ScriptedBackend

VOCABULARY = ByteVocabulary()

TEXTS = st.text(alphabet="ab_  \n\n\t(){}:é数🧪;'<|>x1", max_size=400)


def prompt_of(
    one: Ask, vocabulary: Vocabulary | None = None, context: int = 2048
) -> tuple[Split, CountingBackend]:
    backend = CountingBackend("", vocabulary, context_tokens=context)
    Completer(backend).complete(one, never, None)
    return Split(backend), backend


@settings(deadline=None)
@given(
    TEXTS, st.integers(0, 400), st.sampled_from(["bytes", "qwen", "gpt2"]), st.sampled_from([64, 256, 2048])
)
def test_any_text_any_cursor(
    qwen_like: TokenizerVocabulary,
    gpt2_like: TokenizerVocabulary,
    text: str,
    cursor: int,
    which: str,
    context: int,
) -> None:
    cursor = min(cursor, len(text))
    vocabulary = {"bytes": ByteVocabulary(), "qwen": qwen_like, "gpt2": gpt2_like}[which]
    one = at(text, cursor, settings=SessionSettings(max_new_tokens=64))
    if vocabulary.fim is None and not text[:cursor]:
        return  # nothing to go on from; tested below
    split, backend = prompt_of(one, vocabulary, context)
    assert text[:cursor].endswith(split.before)
    assert text[cursor:].startswith(split.suffix)
    if context == 2048 and which != "bytes":
        assert text[:cursor] == split.before
        assert which == "gpt2" or text[cursor:] == split.suffix
    request = backend.requests[-1]
    assert len(request.prompt) + request.max_new_tokens <= context


def test_the_anchor_is_the_start_of_the_nearest_line_with_something_in_it() -> None:
    split, _ = prompt_of(ask("import a\n\ndef f(x):\n\n    ‸\n\nz()\n"))
    assert (split.prefix, split.typed + split.needed) == ("import a\n\n", "def f(x):\n\n    ")
    split, _ = prompt_of(ask("import a\n\ndef f(x):\n    return x‸ + 1\n"))
    assert (split.prefix, split.typed + split.needed) == ("import a\n\ndef f(x):\n", "    return x")


def test_the_header_names_repository_and_path() -> None:
    split, backend = prompt_of(ask("x‸"))
    fim = backend.vocabulary.fim
    assert split.header == "w\na.py\n"
    assert split.header_ids[0] == fim.repository
    assert fim.file in split.header_ids


def test_names_are_user_text_and_have_a_budget() -> None:
    name = "<|fim_prefix|>" * 40
    split, backend = prompt_of(ask("x‸", path=name, repository=name, settings=SessionSettings()))
    assert len(split.header_ids) <= 2 + 2 + 32 + 64
    assert sum(map(split.header_ids.count, backend.vocabulary.control)) == 2


def test_windows_line_ends_do_not_reach_the_model() -> None:
    text = "def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        ‸\r\n    return acc\r\n"
    split, backend = prompt_of(ask(text))
    assert "\r" not in backend.prompts[-1]
    before, after = unix(text).split("‸")
    assert (split.before, split.suffix) == (before, after)


def test_source_that_holds_markers() -> None:
    before = (
        'FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]\nEND = "<|endoftext|>"\n\n'
        "def build(pre, suf):\n    return "
    )
    after = '\n\nLAST = "<|file_sep|>"\n'
    split, backend = prompt_of(at(before + after, len(before)))
    assert (split.before, split.suffix) == (before, after)
    ids, fim = backend.requests[-1].prompt, backend.vocabulary.fim
    assert [ids.count(marker) for marker in (fim.repository, fim.file)] == [1, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [0, 3])
def test_an_empty_document_has_a_well_formed_prompt(position: int) -> None:
    split, _ = prompt_of(at("", 0, path="empty.py"))
    assert (split.prefix, split.suffix, split.typed, split.needed) == ("", "", "", "")


def test_a_bare_prefix_never_ends_in_blanks_or_a_line_end(gpt2_like: TokenizerVocabulary) -> None:
    """But for all blanks of an indentation except the last, which goes with the word that follows it."""
    for text in ("def f(x):\n    ‸", "x = ‸", "a = 1\n‸", "def f(x):\n    ret‸", "x = 1\n\n\n‸y"):
        split, _ = prompt_of(ask(text), gpt2_like)
        in_a_word = split.needed[:1] == " " and split.needed[1:2].strip()
        assert in_a_word or split.typed == split.typed.rstrip()
        assert split.before == text.partition("‸")[0]


def test_a_bare_prefix_of_nothing_is_no_prompt(gpt2_like: TokenizerVocabulary) -> None:
    backend = CountingBackend("", gpt2_like)
    completion = Completer(backend).complete(ask("‸x"), never, None)
    assert (backend.starts, completion.reason) == (0, "nothing")


@pytest.mark.parametrize("lines", [50_000, 330_000])
@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_large_documents(lines: int, place: str) -> None:
    text = "".join(f"value_{i} = compute({i})\n" for i in range(lines))
    cursor = {
        "start": 0,
        "middle": text.index(f"value_{lines // 2} ") - 1,
        "end": len(text),
    }[place]
    backend = CountingBackend("", context_tokens=2048)
    completer = Completer(backend)
    spent = -time.process_time()
    for _ in range(20):
        text, cursor = text[:cursor] + "x" + text[cursor:], cursor + 1
        one = at(text, cursor, settings=SessionSettings(max_new_tokens=64))
        completer.complete(one, never, None)
    spent += time.process_time()
    request, split = backend.requests[-1], Split(backend)
    assert len(request.prompt) + request.max_new_tokens <= 2048
    assert split.before.endswith(text[max(0, cursor - 200) : cursor])
    assert split.suffix.startswith(text[cursor : cursor + 100])
    before, after = text[:cursor], text[cursor:]
    assert before == split.before or before[-len(split.before) - 1] == "\n"
    assert after == split.suffix or split.suffix.endswith("\n")
    assert spent < 5


def test_a_line_of_two_megabytes_is_cut_within_itself() -> None:
    text = "const a = 1; " * 160_000
    cursor = 1_000_003
    backend = CountingBackend("")
    completer = Completer(backend)
    for _ in range(3):
        text, cursor = text[:cursor] + "x" + text[cursor:], cursor + 1
        completer.complete(at(text, cursor), never, None)
        split = Split(backend)
        assert text[:cursor].endswith(split.before)
        assert len(split.before) > 200
        assert text[cursor:].startswith(split.suffix)
        assert len(split.suffix) > 100
    assert backend.prefilled[-1] <= 2


def test_snippets_stand_before_the_file_and_stay_while_one_types() -> None:
    backend = ScriptedBackend("x")
    completer = Completer(backend)
    place = ask("a = 1\nb‸", settings=SessionSettings())
    snippets = (Snippet("lib/util.py", "def helper(): ..."),)
    completer.complete(replace(place, snippets=snippets), lambda: False, None)
    prompt = VOCABULARY.render(backend.requests[-1].prompt)
    assert "<|file_sep|>lib/util.py\ndef helper(): ...\n<|file_sep|>" in prompt
    assert prompt.index("lib/util.py") < prompt.index("<|fim_prefix|>")
    typed = replace(place, text=place.text + "c", offset=place.offset + 1, snippets=())
    completer.complete(typed, lambda: False, None)
    later = VOCABULARY.render(backend.requests[-1].prompt)
    assert later.startswith(prompt)


def test_snippets_that_come_later_are_taken_in_when_idle() -> None:
    backend = ScriptedBackend("x")
    completer = Completer(backend)
    place = ask("a = 1\nb‸", settings=SessionSettings())
    completer.complete(place, lambda: False, None)
    typed = replace(place, text=place.text + "q", offset=place.offset + 1)
    typed = replace(typed, snippets=(Snippet("u.py", "def helper(): ..."),))
    completer.complete(typed, lambda: False, None)
    assert "helper" not in VOCABULARY.render(backend.requests[-1].prompt)
    while completer.idle(lambda: False):
        pass
    more = replace(typed, text=typed.text + "z", offset=typed.offset + 1)
    completer.complete(more, lambda: False, None)
    assert "helper" in VOCABULARY.render(backend.requests[-1].prompt)


def test_snippets_that_do_not_fit_are_left_out() -> None:
    backend = ScriptedBackend("x", context_tokens=512)
    completer = Completer(backend)
    many = (Snippet("first.py", "def small(): ..."), Snippet("second.py", "big = 1\n" * 500))
    completer.complete(replace(ask("b‸", settings=SessionSettings()), snippets=many), lambda: False, None)
    prompt = VOCABULARY.render(backend.requests[-1].prompt)
    assert "small" in prompt
    assert "second.py" not in prompt
    assert len(backend.requests[-1].prompt) + backend.requests[-1].max_new_tokens <= 512
