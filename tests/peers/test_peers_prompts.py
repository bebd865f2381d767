"""The same places for every contender."""

from __future__ import annotations

from peers.prompts import copied, cut
from peers.weights import EMBEDDED

from copilotd.models.tokenizer import TokenizerVocabulary


def test_prompts_have_their_length_and_come_again() -> None:
    vocabulary = TokenizerVocabulary.from_folder(EMBEDDED / "target")
    for kind in ("fresh", "copied"):
        first, again = (list(cut(vocabulary, kind, 2, 200)) for _ in range(2))
        assert first == again
        for prompt in first:
            assert 190 <= len(prompt.ids) <= 200
            assert prompt.ids[-1] == vocabulary.fim.middle  # type: ignore[union-attr]


def test_a_copied_block_stands_above_its_copy() -> None:
    text = "".join(f"line {i}\n" for i in range(100))
    before, after = copied(text, text.index("line 40") + 3)
    assert before.endswith("line 50\nline 51\nline 40\n")
    assert after.startswith("line 52\n")
