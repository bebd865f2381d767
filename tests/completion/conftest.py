"""Small byte-level BPE vocabularies with the patterns that matter, trained on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from copilotd.models.tokenizer import TokenizerVocabulary

SOURCES = Path(__file__).resolve().parents[1] / "sources"
MARKERS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
]  # fmt: skip
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def train(pattern: pre_tokenizers.PreTokenizer, markers: list[str]) -> TokenizerVocabulary:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pattern
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.iterdir())]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(markers)
    vocabulary = TokenizerVocabulary(json.loads(tokenizer.to_str()), "trained here")
    vocabulary.render = vocabulary.decode  # type: ignore[attr-defined]  # the scripted backend records texts
    return vocabulary


@pytest.fixture(scope="session")
def qwen_like() -> TokenizerVocabulary:
    """Qwen's pattern and markers: a line's start is a stable boundary."""
    split = pre_tokenizers.Split(Regex(QWEN), behavior="isolated")
    return train(pre_tokenizers.Sequence([split, byte_level(False)]), MARKERS)


@pytest.fixture(scope="session")
def gpt2_like() -> TokenizerVocabulary:
    """GPT-2's pattern, no infilling: newline and indentation are one token (SmolLM2)."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return train(pre_tokenizers.Sequence([digits, byte_level(True)]), ["<|endoftext|>"])


def byte_level(pattern: bool) -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern)


@pytest.fixture(scope="session")
def sources() -> list[str]:
    """Real files, "\\n" line ends."""
    return [
        path.read_text(encoding="utf-8").replace("\r\n", "\n")
        for path in sorted(SOURCES.iterdir())
        if path.suffix != ".md"
    ]
