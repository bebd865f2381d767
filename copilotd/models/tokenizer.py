"""The Vocabulary of a folder with a byte-level BPE `tokenizer.json`.

User text is encoded by the plain BPE alone: the added tokens are taken out of the tokenizer first, so the
characters `<|fim_prefix|>` in somebody's code are characters, whether the file calls that token special or
not. The normaliser is taken out too. Qwen's is NFC, which rewrites text: with it, what is decoded need not
be what the editor holds, and offsets, overlap and healing would be reckoned in characters that are not the
user's. Without it bytes go in and the same bytes come out; only text that is not NFC, rare in code, gets
other ids than in training.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from copilotd.models.errors import ModelError
from copilotd.models.vocabulary import FimTokens


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()
_TO_LATIN_1 = str.maketrans({character: chr(byte) for character, byte in _ALPHABET.items()})

_FIM_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
)
_REPOSITORY_NAMES = ("<|repo_name|>", "<repo_name>", "<reponame>")
_FILE_NAMES = ("<|file_sep|>", "<file_sep>", "<filename>")


class TokenizerVocabulary:
    """Implements `Vocabulary` on the `tokenizers` library."""

    def __init__(self, description: dict[str, Any], where: str) -> None:
        """`description` is the content of tokenizer.json, `where` its name in errors. Raises ModelError."""
        plain, markers = _split(description, where)
        self._plain = plain
        self.size = max(max(plain.get_vocab(False).values()), max(markers.values(), default=0)) + 1
        self._bytes = [b""] * self.size
        for token, index in plain.get_vocab(False).items():
            try:
                self._bytes[index] = token.translate(_TO_LATIN_1).encode("latin-1")
            except UnicodeEncodeError:
                raise ModelError(
                    f"{where}: its tokens are not byte-level; copilotd reads byte-level BPE tokenizers "
                    "(Qwen, Llama 3, StarCoder, DeepSeek): choose such a model"
                ) from None
        self._markers = {index: content for content, index in markers.items()}
        self.control = frozenset(index for index, text in enumerate(self._bytes) if not text)
        self.fim = _fim(markers)
        self.begin = _begin(description)

    @classmethod
    def from_folder(cls, folder: Path) -> TokenizerVocabulary:
        """Reads `folder/tokenizer.json`. Raises ModelError when it is missing or no byte-level BPE."""
        path = folder / "tokenizer.json"
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: fetch the model again (copilotd pull)") from None
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{path} cannot be read ({type(error).__name__}): fetch the model again"
            ) from None
        if not isinstance(description, dict):
            raise ModelError(f"{path} holds no tokenizer: fetch the model again")
        return cls(description, str(path))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    def marker(self, token: int) -> str | None:
        """The name of a control token, such as <|fim_prefix|>."""
        return self._markers.get(token)

    def decode(self, ids: Sequence[int]) -> str:
        text = b"".join([self._bytes[token] for token in ids])
        return codecs.getincrementaldecoder("utf-8")("replace").decode(text)


def _split(description: dict[str, Any], where: str) -> tuple[Tokenizer, dict[str, int]]:
    """The tokenizer without its markers, and the markers with their ids.

    Added runs of white space (CodeGen's, Phi's) are text, not markers, and stay.
    """
    model = description.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise ModelError(f"{where}: no BPE model inside; copilotd reads byte-level BPE tokenizers")
    try:
        added = {entry["content"]: int(entry["id"]) for entry in description.get("added_tokens") or ()}
    except (TypeError, KeyError, ValueError):
        raise ModelError(f"{where}: its added_tokens cannot be read: fetch the model again") from None
    markers = {content: index for content, index in added.items() if not content.isspace()}
    kept = [entry for entry in description.get("added_tokens") or () if entry["content"] not in markers]
    plain = description | {
        "added_tokens": kept,
        "normalizer": None,
        "post_processor": None,
        "truncation": None,
        "padding": None,
        "pre_tokenizer": _without_prefix_space(description.get("pre_tokenizer")),
        "model": model
        | {
            "vocab": {token: index for token, index in model["vocab"].items() if token not in markers},
            "unk_token": None,
            "dropout": None,
        },
    }
    try:
        return Tokenizer.from_str(json.dumps(plain)), markers
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            f"{where}: the tokenizers library cannot read it ({type(error).__name__}): fetch the model again"
        ) from None


def _without_prefix_space(part: Any) -> Any:
    """A space put before every piece of a prompt would not be the user's."""
    if isinstance(part, list):
        return [_without_prefix_space(entry) for entry in part]
    if isinstance(part, dict):
        cleaned = {key: _without_prefix_space(value) for key, value in part.items()}
        return cleaned | ({"add_prefix_space": False} if "add_prefix_space" in part else {})
    return part


def _fim(markers: dict[str, int]) -> FimTokens | None:
    def first(names: Sequence[str]) -> int | None:
        return next((markers[name] for name in names if name in markers), None)

    for prefix, suffix, middle in _FIM_NAMES:
        if prefix in markers and suffix in markers and middle in markers:
            return FimTokens(
                prefix=markers[prefix],
                suffix=markers[suffix],
                middle=markers[middle],
                repository=first(_REPOSITORY_NAMES),
                file=first(_FILE_NAMES),
            )
    return None


def _begin(description: dict[str, Any]) -> int | None:
    """The id that the tokenizer's own template puts before every text."""
    template = description.get("post_processor") or {}
    processors = template.get("processors", [template])
    for processor in processors:
        if processor.get("type") == "TemplateProcessing":
            opening = processor["single"][0].get("SpecialToken")
            if opening is not None:
                return int(processor["special_tokens"][opening["id"]]["ids"][0])
    return None
