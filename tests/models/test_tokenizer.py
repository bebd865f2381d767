"""User text in, the same bytes out, and never a control token."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.models.errors import ModelError
from copilotd.models.tokenizer import _ALPHABET, TokenizerVocabulary

MARKERS = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|repo_name|>",
    "<|file_sep|>",
)


def description(markers: tuple[str, ...] = MARKERS, special: bool = False) -> dict[str, Any]:
    """A byte-level BPE with a few merges, in the form of Qwen's file: markers not special, NFC."""
    vocab = dict(_ALPHABET)
    merges = [("r", "e"), ("t", "u"), ("re", "tu"), ("r", "n"), ("retu", "rn"), ("<", "|"), ("|", ">")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    return {
        "version": "1.0",
        "truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": None,
        "added_tokens": [
            {
                "id": len(vocab) + i,
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": special,
            }
            for i, content in enumerate(markers)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": False,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges],
        },
    }


@pytest.fixture(scope="module")
def vocabulary() -> TokenizerVocabulary:
    return TokenizerVocabulary(description(), "tokenizer.json")


@given(text=st.text(max_size=60))
def test_round_trip_is_exact(vocabulary: TokenizerVocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert b"".join(map(vocabulary.token_bytes, ids)) == text.encode()
    assert vocabulary.decode(ids) == text


@pytest.mark.parametrize("special", [False, True])
def test_marker_text_in_code_is_plain_characters(special: bool) -> None:
    vocabulary = TokenizerVocabulary(description(special=special), "tokenizer.json")
    text = "x = '" + "".join(MARKERS) + "'\n"
    ids = vocabulary.encode(text)
    assert not vocabulary.control.intersection(ids)
    assert vocabulary.decode(ids) == text


def test_marker_in_the_vocabulary_is_no_token_of_user_text() -> None:
    """SmolLM2 keeps its markers in the BPE's own vocabulary as well."""
    form = description()
    form["model"]["vocab"] |= {entry["content"]: entry["id"] for entry in form["added_tokens"]}
    form["model"]["ignore_merges"] = True
    form["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    vocabulary = TokenizerVocabulary(form, "tokenizer.json")
    for marker in MARKERS:
        assert not vocabulary.control.intersection(vocabulary.encode(marker))
    assert vocabulary.control == frozenset(entry["id"] for entry in form["added_tokens"])


def test_text_that_is_not_nfc_stays_as_the_user_wrote_it(vocabulary: TokenizerVocabulary) -> None:
    decomposed = unicodedata.normalize("NFD", "naïve")
    assert vocabulary.decode(vocabulary.encode(decomposed)) == decomposed


def test_half_character_at_the_end_is_dropped(vocabulary: TokenizerVocabulary) -> None:
    ids = vocabulary.encode("a€")
    assert vocabulary.decode(ids[:-1]) == "a"
    assert vocabulary.decode(ids[:1] + ids[2:] + vocabulary.encode("b")) == "a��b"


def test_control_tokens_have_no_text(vocabulary: TokenizerVocabulary) -> None:
    assert all(vocabulary.token_bytes(token) == b"" for token in vocabulary.control)
    assert len(vocabulary.control) == len(MARKERS)
    assert vocabulary.size == max(vocabulary.control) + 1


def test_fim_tokens_by_name(vocabulary: TokenizerVocabulary) -> None:
    assert vocabulary.fim is not None
    first = min(vocabulary.control)
    assert (vocabulary.fim.prefix, vocabulary.fim.middle, vocabulary.fim.suffix) == (
        first + 1,
        first + 2,
        first + 3,
    )
    assert (vocabulary.fim.repository, vocabulary.fim.file) == (first + 4, first + 5)
    smol = TokenizerVocabulary(description(("<|endoftext|>", "<repo_name>", "<file_sep>")), "tokenizer.json")
    assert smol.fim is None
    star = TokenizerVocabulary(
        description(("<fim_prefix>", "<fim_middle>", "<fim_suffix>")), "tokenizer.json"
    )
    assert star.fim is not None
    assert star.fim.repository is None


def test_begin_is_what_the_template_puts_first() -> None:
    form = description()
    assert TokenizerVocabulary(form, "tokenizer.json").begin is None
    begin = form["added_tokens"][0]
    form["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": begin["content"], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            begin["content"]: {"id": begin["content"], "ids": [begin["id"]], "tokens": [begin["content"]]}
        },
    }
    assert TokenizerVocabulary(form, "tokenizer.json").begin == begin["id"]


def test_errors_name_the_file_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing.*fetch"):
        TokenizerVocabulary.from_folder(tmp_path)
    for content in (
        "{",
        "[]",
        "{}",
        json.dumps({"model": {"type": "BPE", "vocab": {"▁the": 0}, "merges": []}}),
    ):
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            TokenizerVocabulary.from_folder(tmp_path)
