"""One answer as ids, while it comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec import Struct

from copilotd.backends.openai.answers import Choice
from copilotd.backends.openai.bodies import Markers
from copilotd.backends.openai.failure import Failure
from copilotd.backends.openai.server import Stream
from copilotd.engine.generation import Cancelled, Finish
from copilotd.models.tokenizer import TokenizerVocabulary

LOOK_S = 0.004
"""how often it is asked whether the answer is still wanted"""
SILENCE_S = 10.0
"""A server that says nothing for so long does not work."""
LATE_S = 1.5
"""Nor does one that has said nothing at all when it was given so long and somebody gave up."""


class Piece(Struct, frozen=True):
    """What one event added."""

    ids: list[int]
    logprobs: list[float]
    """of each id; 0.0 where nobody knows"""


class IdReader:
    """From what the server says to ids, up to the first control id or marker."""

    def __init__(self, vocabulary: TokenizerVocabulary, markers: Markers, stop_ids: frozenset[int]) -> None:
        self._vocabulary, self._markers, self._stop_ids = vocabulary, markers, stop_ids
        self._held = ""

    def read(self, choice: Choice, *, ids: bool) -> tuple[Piece, bool]:
        """(what is new, whether a control token ended it). `ids`: the server's ids are our vocabulary's."""
        if ids and choice.token_ids is not None:
            new = choice.token_ids
            ended = (
                n for n, token in enumerate(new) if token in self._stop_ids or token >= self._vocabulary.size
            )
            length = next(ended, len(new))
            return Piece(new[:length], _logprobs(choice, len(new))[:length]), length < len(new)
        text, self._held, marked = self._markers.split(self._held + choice.text)
        if choice.finish_reason is not None and not marked:
            text, self._held = text + self._held, ""
        written = self._vocabulary.encode(text)
        return Piece(written, [0.0] * len(written)), marked


def _logprobs(choice: Choice, count: int) -> list[float]:
    """One for each id; 0.0 where they are not told."""
    told = choice.logprobs.token_logprobs if choice.logprobs is not None else []
    return [value or 0.0 for value in told] if len(told) == count else [0.0] * count


class Answer:
    """Iterate once. Whoever ends the iteration early closes the stream; one that the server ends is left to end
    by itself, so that its connection is kept."""

    def __init__(self, stream: Stream, reader: IdReader, cancelled: Cancelled, *, ids: bool) -> None:
        self.finish: Finish = "cancelled"
        """as far as known: "stop" or "length" once the server has said so"""
        self.first_s: float | None = None
        """seconds until something came"""
        self._stream, self._reader, self._cancelled, self._ids = stream, reader, cancelled, ids
        self._started = time.monotonic()

    def __iter__(self) -> Iterator[Piece]:
        """Raises Failure. Ends with `finish` "cancelled" where nobody wants it any more."""
        done = False
        try:
            while not done and (choice := self._next()) is not None:
                done = choice.finish_reason is not None
                piece, ended = self._reader.read(choice, ids=self._ids)
                if ended:
                    self.finish = "stop"
                elif done:
                    self.finish = "length" if choice.finish_reason == "length" else "stop"
                if piece.ids:
                    yield piece
                if ended:
                    return
        finally:
            if not done:
                self._stream.close()

    def _next(self) -> Choice | None:
        """None: cancelled."""
        since = time.monotonic()
        while not self._cancelled():
            if (choice := self._stream.next(LOOK_S)) is not None:
                self.first_s = self.first_s or time.monotonic() - self._started
                return choice
            if time.monotonic() - since > SILENCE_S:
                raise Failure("does not answer")
        if self.first_s is None and time.monotonic() - self._started > LATE_S:
            raise Failure("does not answer in time")
        return None
