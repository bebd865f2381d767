"""Requests in the two forms that servers take: token ids, with vLLM's extras, or plain text.

The vocabulary is the server's own where its tokenizer.json is at hand. Where it is not, ids are those of
another tokenizer, good for counting and cutting, and prompts go as text. There the server turns what looks
like a marker into one, so a blank is put into those that stand in the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum

from copilotd.engine.generation import GenerationRequest
from copilotd.models.tokenizer import TokenizerVocabulary

_SUSPECT = re.compile(
    r"<(?=\|[A-Za-z0-9_]{1,40}\|>|｜[^｜\n]{1,40}｜>|/?s>"
    r"|(?:fim[_-](?:prefix|middle|suffix|pad)|repo_name|reponame|file_sep|filename|gh_stars|pad|unk|mask)>)"
    r"|\[(?=/?(?:INST|SUFFIX|PREFIX|MIDDLE|TOOL_CALLS)\])"
)
"""Where text begins what some model takes for a control token."""

ANYTHING = r"[^\x00]*"


class Form(IntEnum):
    """How a server is spoken to, the best way first."""

    MASKED_IDS = 0
    """what the answer must begin with is masked there"""
    IDS = 1
    TEXT = 2


def ids_body(
    model: str, prompt: Sequence[int], request: GenerationRequest, most: int, needed: str = ""
) -> dict[str, object]:
    """For vLLM: nothing has to be split into tokens there, and its ids come back. The answer begins with
    `needed`, in whatever tokens the model likes best."""
    masked: dict[str, object] = {"structured_outputs": {"regex": beginning(needed)}} if needed else {}
    return (
        masked
        | _shared(model, request, most)
        | {
            "prompt": list(prompt),
            "return_token_ids": True,
            "logprobs": 0,  # those of the ids written, and of no others
            "stop_token_ids": sorted(request.stop_ids),
            "top_k": request.sampling.top_k or -1,
        }
    )


def beginning(needed: str) -> str:
    """A regular expression for what begins so; of the kind that all of vLLM's grammar engines know."""
    return (
        re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", needed).replace("\n", "\\n").replace("\t", "\\t")
        + ANYTHING
    )


def text_body(
    model: str, prompt: Sequence[int], request: GenerationRequest, most: int, vocabulary: TokenizerVocabulary
) -> dict[str, object]:
    """For every server."""
    return _shared(model, request, most) | {"prompt": text_prompt(prompt, vocabulary)}


def _shared(model: str, request: GenerationRequest, most: int) -> dict[str, object]:
    sampling = request.sampling
    body: dict[str, object] = {"model": model, "max_tokens": most, "stream": True}
    if sampling.greedy:
        return body | {"temperature": 0.0}
    return body | {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}


def text_prompt(prompt: Iterable[int], vocabulary: TokenizerVocabulary) -> str:
    """The markers written out, but for the first one of every text: a server puts that there by itself."""
    parts: list[str] = []
    plain = b""
    for token in prompt:
        marker = vocabulary.marker(token)
        if marker is None:
            plain += vocabulary.token_bytes(token)
            continue
        parts.append(_harmless(plain))
        plain = b""
        if token != vocabulary.begin:
            parts.append(marker)
    return "".join([*parts, _harmless(plain)])


def _harmless(text: bytes) -> str:
    return _SUSPECT.sub(lambda match: match[0] + " ", text.decode(errors="ignore"))


class Markers:
    """Finds where a model's text turns into its own markers, also where one comes in pieces."""

    def __init__(self, vocabulary: TokenizerVocabulary) -> None:
        self._markers = tuple(filter(None, (vocabulary.marker(token) for token in vocabulary.control)))
        self._any = re.compile("|".join(map(re.escape, self._markers))) if self._markers else None

    def split(self, text: str) -> tuple[str, str, bool]:
        """(text for sure, what may be the beginning of a marker, whether a marker ends the text)."""
        if self._any is not None and (match := self._any.search(text)):
            return text[: match.start()], "", True
        start = max(0, len(text) - max(map(len, self._markers), default=0))
        for place in range(start, len(text)):
            if any(marker.startswith(text[place:]) for marker in self._markers):
                return text[:place], text[place:], False
        return text, "", False
