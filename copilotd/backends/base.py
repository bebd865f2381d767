"""The seam between completion/ and whatever writes the tokens."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.models.offer import Offer
from copilotd.models.vocabulary import Vocabulary


class BackendError(Exception):
    """Why a backend cannot answer. The message names what is wrong and the remedy; it is said once."""


class Unavailable(BackendError):
    """For a moment only: nobody need be told."""


@runtime_checkable
class Begins(Protocol):
    """A `Constraint` that says what the text must begin with, for backends that cannot mask ids."""

    needed: bytes


Progress: TypeAlias = Callable[[str, float, float], None]
"""What is being loaded, megabytes done, megabytes in all (0: unknown). It may raise to end the load."""


class Identity(Struct, frozen=True):
    """What the self-test of row invariance found on this device; None: nobody can say."""

    speculation: bool | None = None
    cache: bool | None = None


class Calibration(Struct, frozen=True):
    """What was measured at load; empty where nothing is measured."""

    threads: int = 0
    """of torch, now; 0: not ours to choose"""
    step_ms: tuple[tuple[int, float], ...] = ()
    """(rows, milliseconds) of a step of the target, ascending"""
    draft_step_ms: tuple[tuple[int, float], ...] = ()
    prefill_tokens_per_s: float = 0.0


class Description(Struct, frozen=True, kw_only=True):
    """What `copilotd status` shows of a backend."""

    target: str = ""
    draft: str = ""
    quantisation: str = ""
    device: str = ""
    kernels: str = ""
    """of a CPU: "compiled" for this very processor, "torch", or both; "": nobody can say"""
    why_torch: str = ""
    """what keeps the models from the compiled ones"""
    identity: Identity = Identity()
    calibration: Calibration = Calibration()
    kv_bytes: int = 0
    tokenizer: str = ""
    """folder of the tokenizer, for the workspace index; "": there is none"""
    snippets: bool = False
    """without a tokenizer: read the workspace all the same, for pieces of other files to show"""
    smaller: str = ""
    """the target to load in its place when memory does not suffice; "": there is none on this machine"""
    offers: tuple[Offer, ...] = ()
    """what could be fetched that is better than what is loaded for want of it"""
    remarks: tuple[str, ...] = ()
    """said to the person once: what is not as configured (no draft, a smaller pair) and what to do"""


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

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Idle work: prefill the prompts of a request, the target's, then the draft's. False: cancelled before
        the end; what was computed stays. A backend that cannot does nothing and says True."""
        ...

    def forget(self, document: Hashable) -> None:
        """A document is closed: what is cached for slots (document, …) goes."""
        ...

    def describe(self) -> Description:
        """Cheap; asked from another thread while `generate` runs."""
        ...

    def shrink(self) -> bool:
        """After out of memory: halve the cache budget. False: there is nothing left to give back."""
        ...

    def close(self) -> None:
        """Free memory, threads and connections."""
        ...
