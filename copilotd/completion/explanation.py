"""Why a completion came out as it did: each stage appends its reason."""

from __future__ import annotations

from msgspec import Struct, field

from copilotd.engine.generation import Counters


class Reason(Struct, frozen=True):
    stage: str
    """prompt, anchor, healing, generate, stop, postprocess.<rule>, session"""
    text: str
    ms: float = 0.0


class Part(Struct, frozen=True):
    """A part of the prompt, in prompt order."""

    name: str
    tokens: int
    text: str


class Explanation(Struct):
    reasons: list[Reason] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)

    def add(self, stage: str, text: str, ms: float = 0.0) -> None:
        self.reasons.append(Reason(stage, text, ms))
