"""Prompts as ids and as text, and what comes back turned into ids."""

from __future__ import annotations

import subprocess
import sys

import pytest

from copilotd.backends.openai.answer import IdReader, Piece
from copilotd.backends.openai.answers import Choice, Logprobs
from copilotd.backends.openai.bodies import Markers, text_prompt
from copilotd.models.catalogue import embedded_folder
from copilotd.models.tokenizer import TokenizerVocabulary

VOCABULARY = TokenizerVocabulary.from_folder(embedded_folder("target"))
MARKERS = Markers(VOCABULARY)
END = min(VOCABULARY.control)


def sent(text: str) -> str:
    fim = VOCABULARY.fim
    assert fim is not None
    return text_prompt([fim.prefix, *VOCABULARY.encode(text), fim.middle], VOCABULARY)


@pytest.mark.parametrize(
    "marker",
    [
        "<|fim_prefix|>",
        "<|im_end|>",
        "<｜fim▁hole｜>",
        "<fim_suffix>",
        "<file_sep>",
        "</s>",
        "<s>",
        "[INST]",
        "[SUFFIX]",
    ],
)
def test_no_markers_of_any_family_in_user_text(marker: str) -> None:
    text = sent(f"a {marker} b")
    assert text.startswith("<|fim_prefix|>a ")
    assert text.endswith(" b<|fim_middle|>")
    assert marker not in text.removeprefix("<|fim_prefix|>").removesuffix("<|fim_middle|>")


@pytest.mark.parametrize("code", ["a < b > c", "List<String>", "x[INDEX]", "a <|> b", "</span>", "f<s|t>()"])
def test_code_goes_as_it_is(code: str) -> None:
    assert sent(code) == f"<|fim_prefix|>{code}<|fim_middle|>"


def test_text_with_wide_characters_and_a_cut_one() -> None:
    ids = VOCABULARY.encode("漢字 😀")
    assert text_prompt(ids, VOCABULARY) == "漢字 😀"
    assert "\ufffd" not in text_prompt(ids[1:], VOCABULARY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain < text", ("plain < text", "", False)),
        ("plain <", ("plain ", "<", False)),
        ("plain <|fim_", ("plain ", "<|fim_", False)),
        ("plain <|fim_x", ("plain <|fim_x", "", False)),
        ("one <|file_sep|> two <|endoftext|>", ("one ", "", True)),
        ("", ("", "", False)),
    ],
)
def test_where_text_turns_into_a_marker(text: str, expected: tuple[str, str, bool]) -> None:
    assert MARKERS.split(text) == expected


def test_a_marker_in_pieces_ends_the_answer() -> None:
    reader = IdReader(VOCABULARY, MARKERS, VOCABULARY.control)
    read = [reader.read(Choice(text=piece), ids=False) for piece in ("re", "turn <", "|endof", "text|> more")]
    assert VOCABULARY.decode([token for piece, _ in read for token in piece.ids]) == "return "
    assert [ended for _, ended in read] == [False, False, False, True]


def test_what_only_looked_like_a_marker_comes_out() -> None:
    reader = IdReader(VOCABULARY, MARKERS, VOCABULARY.control)
    read = [reader.read(Choice(text=piece), ids=False)[0] for piece in ("a <|", "b")]
    last, _ = reader.read(Choice(text=" <", finish_reason="stop"), ids=False)
    assert VOCABULARY.decode([token for piece in [*read, last] for token in piece.ids]) == "a <|b <"


def test_ids_end_at_a_control_id_and_at_what_is_no_id() -> None:
    reader = IdReader(VOCABULARY, MARKERS, VOCABULARY.control)
    assert reader.read(Choice(token_ids=[5, 6, END, 7]), ids=True) == (Piece([5, 6], [0.0, 0.0]), True)
    assert reader.read(Choice(token_ids=[5, VOCABULARY.size]), ids=True) == (Piece([5], [0.0]), True)
    assert reader.read(Choice(token_ids=[5]), ids=True) == (Piece([5], [0.0]), False)
    unasked, _ = reader.read(Choice(text="x", token_ids=[5]), ids=False)
    assert VOCABULARY.decode(unasked.ids) == "x"


def test_probabilities_are_those_of_the_ids() -> None:
    reader = IdReader(VOCABULARY, MARKERS, VOCABULARY.control)
    told = Logprobs([-0.5, None, -2.0])
    assert reader.read(Choice(token_ids=[5, 6, END], logprobs=told), ids=True)[0].logprobs == [-0.5, 0.0]
    assert reader.read(Choice(token_ids=[5], logprobs=told), ids=True)[0].logprobs == [0.0]


def test_nothing_of_a_model_is_needed() -> None:
    """`pip install copilotd` alone: no package of the extra `local` is there."""
    script = """
import sys
for name in ("torch", "transformers", "bitsandbytes", "safetensors", "gguf", "scipy"):
    sys.modules[name] = None
import copilotd.cli.serve, copilotd.cli.stdio, copilotd.context.service, copilotd.daemon.server
from copilotd.backends.openai.backend import OpenAIBackend
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings
backend = OpenAIBackend(DaemonSettings(backend="openai", endpoint="http://127.0.0.1:9/v1", endpoint_model="m"))
Completer(backend)
backend.close()
"""
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=60)
