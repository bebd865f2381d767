from __future__ import annotations

import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.completion.detokenise import bytes_of
from copilotd.completion.healing import MOST_BYTES, Healing, TokenIndex, stable_length
from copilotd.completion.pieces import PieceEncoder
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.support.scripted import ByteVocabulary

CODE = st.text(alphabet="abcdef_  \n\t().=:,0123é数🧪'\"", min_size=1, max_size=80)


def test_what_is_kept_stays_whatever_really_follows(
    qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary, sources: list[str]
) -> None:
    chance = random.Random(7)
    for vocabulary in (qwen_like, gpt2_like):
        encoder = PieceEncoder(vocabulary)
        dropped = moved = 0
        for text in sources:
            for _ in range(100):
                cursor = chance.randrange(1, len(text))
                start = text.rfind("\n", 0, max(0, cursor - 100)) + 1
                typed = encoder.encode(text[start:cursor])
                kept = stable_length(typed, vocabulary, encoder.line_starts_stable)
                dropped += len(typed) - kept
                moved += encoder.encode(text[start : cursor + 200])[:kept] != typed[:kept]
        assert moved <= 0.01 * 100 * len(sources), "kept tokens that typing on changed"
        assert dropped <= 3 * 100 * len(sources), "dropped more than needed"


def test_a_word_is_dropped_with_the_blank_or_mark_before_it(qwen_like: TokenizerVocabulary) -> None:
    encoder = PieceEncoder(qwen_like)

    def dropped(text: str) -> str:
        ids = encoder.encode(text)
        return bytes_of(qwen_like, ids[stable_length(ids, qwen_like, True) :]).decode()

    assert dropped("    return tot") == " tot"
    assert dropped("x = ") == " "
    assert dropped("foo(") == "("
    assert dropped("def f(x):\n    ") == "    "
    assert dropped("a = 1\n\n") == "\n\n"


@given(CODE)
def test_never_all_is_kept_and_a_blob_is_not_dropped_whole(
    qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary, text: str
) -> None:
    for vocabulary in (qwen_like, gpt2_like, ByteVocabulary()):
        ids = vocabulary.encode(text)
        kept = stable_length(ids, vocabulary, vocabulary is not gpt2_like)
        assert kept < len(ids)
        bytes_of(vocabulary, ids[:kept]).decode()  # no cut within a character
        kept = stable_length(ids, vocabulary, vocabulary is not gpt2_like, least=1)
        assert kept >= 1
        bytes_of(vocabulary, ids[:kept]).decode()
    blob = ids = qwen_like.encode("x" * 500)
    kept = stable_length(blob, qwen_like, True)
    assert len(bytes_of(qwen_like, ids[kept:])) <= MOST_BYTES + 16


def test_no_cut_before_a_combining_mark(qwen_like: TokenizerVocabulary) -> None:
    ids = qwen_like.encode("x = 1\u0301")
    kept = stable_length(ids, qwen_like, True)
    assert not bytes_of(qwen_like, ids[kept:]).decode().startswith("\u0301")


@settings(deadline=None)
@given(CODE, st.integers(0, 2**32))
def test_what_is_drawn_under_the_masks_begins_with_the_dropped_bytes(
    qwen_like: TokenizerVocabulary, text: str, seed: int
) -> None:
    needed = text.encode()
    healing = Healing(INDEX.setdefault(0, TokenIndex(qwen_like)), qwen_like, needed)
    chance = random.Random(seed)
    state, out = healing.start(), b""
    while (mask := healing.mask(state)) is not None:
        token = chance.choice(torch.nonzero(mask).flatten().tolist())
        assert token not in qwen_like.control
        out += qwen_like.token_bytes(token)
        state = healing.next(state, token)
    assert out.startswith(needed)


INDEX: dict[int, TokenIndex] = {}


@given(st.binary(min_size=1, max_size=6))
def test_masks_are_what_a_walk_over_the_vocabulary_says(
    qwen_like: TokenizerVocabulary, needed: bytes
) -> None:
    if needed[-1] == 0xFF:
        return
    index = INDEX.setdefault(0, TokenIndex(qwen_like))
    expected = {
        token
        for token in range(qwen_like.size)
        if (text := qwen_like.token_bytes(token)) and (text.startswith(needed) or needed.startswith(text))
    }
    assert set(index.matching(needed)) == expected


def test_every_id_may_come_once_the_dropped_bytes_are_out(qwen_like: TokenizerVocabulary) -> None:
    index = TokenIndex(qwen_like)
    healing = Healing(index, qwen_like, b" re")
    assert healing.mask(0) is not None
    assert healing.mask(healing.next(0, qwen_like.encode(" return")[0])) is None
    assert index.with_newline
    assert all(b"\n" in qwen_like.token_bytes(token) for token in index.with_newline)
