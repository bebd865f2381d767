"""What a server says, decoded: the parts of a completion that copilotd reads."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from copilotd.backends.openai.failure import Failure, of_content


class Logprobs(Struct):
    token_logprobs: list[float | None] = []


class Choice(Struct):
    text: str = ""
    token_ids: list[int] | None = None
    """vLLM's `return_token_ids`"""
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Chunk(Struct):
    """One event of a stream, or a whole answer."""

    choices: list[Choice]


class Model(Struct):
    id: str
    max_model_len: int | None = None
    """vLLM's: prompt and new tokens together"""


class Models(Struct):
    data: list[Model] = field(default_factory=list)


class Tokens(Struct):
    """Of vLLM's /tokenize."""

    tokens: list[int]


_chunk = msgspec.json.Decoder(Chunk)


def chunk(data: str | bytes) -> Choice | None:
    """The first choice, if there is one: some servers end with an event that only counts. Raises Failure."""
    try:
        choices = _chunk.decode(data).choices
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise of_content("application/json") from None
    return choices[0] if choices else None


def whole(data: bytes) -> Choice:
    """From a server that does not stream. Raises Failure."""
    choice = chunk(data)
    if choice is None:
        raise of_content("application/json")
    choice.finish_reason = choice.finish_reason or "stop"
    return choice


def cut_short() -> Failure:
    return Failure("broke off the connection")
