"""Why a completion came out as it did: each stage appends its reason."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from copilotd.completion.detokenise import bytes_of
from copilotd.engine.generation import Counters, Proposed
from copilotd.models.vocabulary import Vocabulary


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


class Draft(Struct, frozen=True):
    """What drafters put before the model in one round."""

    source: str
    """echo, lookup, workspace, draft; several joined by +"""
    accepted: str
    """how much of it the model wrote too"""
    rejected: str


class Explanation(Struct):
    reasons: list[Reason] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)

    def add(self, stage: str, text: str, ms: float = 0.0) -> None:
        self.reasons.append(Reason(stage, text, ms))


def draft_of(vocabulary: Vocabulary, proposed: Proposed) -> Draft:
    def text(ids: Sequence[int]) -> str:
        return bytes_of(vocabulary, ids).decode(errors="replace")

    ids, accepted = proposed.ids, proposed.accepted
    return Draft("+".join(dict.fromkeys(proposed.source)), text(ids[:accepted]), text(ids[accepted:]))
