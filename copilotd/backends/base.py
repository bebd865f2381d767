"""The seam between completion/ and whatever writes the tokens."""

from __future__ import annotations

from typing import Protocol

from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.models.vocabulary import Vocabulary


class BackendError(Exception):
    """Why a backend cannot answer. The message names what is wrong and the remedy; it is said once."""


class Backend(Protocol):
    """Ids in, ids out. Used by one thread at a time."""

    name: str
    """what status shows, e.g. `Qwen2.5-Coder-1.5B + 0.5B, nf4, cpu`"""
    vocabulary: Vocabulary
    context_tokens: int
    """prompt and new tokens together, at most"""
    prefill_tokens_per_s: float
    """measured; budgets of cold prompts come from it"""

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        """Raises BackendError; never raises for anything in `request` that completion/ can produce."""
        ...

    def close(self) -> None:
        """Free memory, threads and connections."""
        ...
