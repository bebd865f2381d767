from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copilotd.completion.pieces import LONG, PieceEncoder
from copilotd.models.tokenizer import TokenizerVocabulary


def test_pieces_encode_as_the_whole(
    qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary, sources: list[str]
) -> None:
    for vocabulary in (qwen_like, gpt2_like):
        encoder = PieceEncoder(vocabulary)
        for text in sources:
            assert encoder.encode(text) == vocabulary.encode(text)
            assert encoder.count(text) == len(vocabulary.encode(text))


def test_the_boundary_depends_on_the_pattern(
    qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary
) -> None:
    assert PieceEncoder(qwen_like).line_starts_stable
    assert not PieceEncoder(gpt2_like).line_starts_stable


@given(st.text())
def test_any_text_comes_back(
    qwen_like: TokenizerVocabulary, gpt2_like: TokenizerVocabulary, text: str
) -> None:
    for vocabulary in (qwen_like, gpt2_like):
        ids = PieceEncoder(vocabulary).encode(text)
        assert b"".join(map(vocabulary.token_bytes, ids)) == text.encode()
        assert not vocabulary.control.intersection(ids)


class Counting:
    """Counts the characters that really are encoded."""

    def __init__(self, vocabulary: TokenizerVocabulary) -> None:
        self._vocabulary = vocabulary
        self.characters = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._vocabulary, name)

    def encode(self, text: str) -> list[int]:
        self.characters += len(text)
        return self._vocabulary.encode(text)


def test_a_keystroke_encodes_one_line(qwen_like: TokenizerVocabulary, sources: list[str]) -> None:
    counting = Counting(qwen_like)
    encoder = PieceEncoder(counting)  # type: ignore[arg-type]
    text = sources[0][:6000]
    encoder.encode(text)
    before = counting.characters
    encoder.encode(text + "x")
    assert counting.characters - before <= max(map(len, text.split("\n"))) + 3


def test_nothing_is_kept_after_forgetting(qwen_like: TokenizerVocabulary) -> None:
    counting = Counting(qwen_like)
    encoder = PieceEncoder(counting)  # type: ignore[arg-type]
    encoder.encode("x = 1\n")
    encoder.forget()
    before = counting.characters
    encoder.encode("x = 1\n")
    assert counting.characters - before == len("x = 1\n")


def test_a_keystroke_in_a_long_line_encodes_a_part_of_it(qwen_like: TokenizerVocabulary) -> None:
    counting = Counting(qwen_like)
    encoder = PieceEncoder(counting)  # type: ignore[arg-type]
    text = "a = 1; " * 5000
    encoder.encode(text)
    before = counting.characters
    encoder.encode(text + "x")
    assert counting.characters - before <= LONG
