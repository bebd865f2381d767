"""What the daemon tells about itself: counts, never text."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from copilotd.backends.base import Calibration, Identity
from copilotd.completion.ask import Completion


class Index(Struct):
    """The workspace index, as its process last published it."""

    folders: int = 0
    files: int = 0
    tokens: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


class Requests(Struct):
    answered: int = 0
    empty: dict[str, int] = field(default_factory=dict)
    """by reason"""
    cancelled: int = 0
    """by the editor, or by a newer request"""
    typed_through: int = 0
    joined: int = 0
    accepted: int = 0
    """items that a person took"""


class Status(Struct, kw_only=True):
    """`copilotd status --json`."""

    pid: int
    version: str
    uptime_s: float
    state: Literal["loading", "ready", "failed", "not running"]
    message: str = ""
    device: str = ""
    target: str = ""
    draft: str = ""
    quantisation: str = ""
    kernels: str = ""
    """of a CPU: "compiled" for this very processor, "torch", or both"""
    why_torch: str = ""
    """what keeps the models from the compiled ones"""
    identity: Identity = field(default_factory=Identity)
    calibration: Calibration = field(default_factory=Calibration)
    clients: int = 0
    documents: int = 0
    kv_bytes: int = 0
    index: Index = field(default_factory=Index)
    requests: Requests = field(default_factory=Requests)
    acceptance: dict[str, float] = field(default_factory=dict)
    """accepted / drafted, by source"""
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    target_steps: int = 0
    generated_tokens: int = 0
    prefill_tokens: int = 0
    prefill: dict[int, int] = field(default_factory=dict)
    """how many requests prefilled so many tokens; above 64, up to the next power of two"""
    reused_tokens: int = 0
    loads: int = 0
    """how often models were loaded, or tried to"""
    last_error: str = ""
    log_path: str = ""


class NotRunning(Struct, kw_only=True):
    """What `copilotd status --json` prints without a daemon."""

    state: Literal["not running"] = "not running"
    version: str
    last_error: str = ""
    log_path: str = ""


class Counts(Struct):
    """Counted over the daemon's life."""

    requests: Requests = field(default_factory=Requests)
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    target_steps: int = 0
    generated_tokens: int = 0
    prefill_tokens: int = 0
    prefill: dict[int, int] = field(default_factory=dict)
    """how many requests prefilled so many tokens; above 64, up to the next power of two"""
    reused_tokens: int = 0

    def empty(self, reason: str) -> None:
        self.requests.empty[reason] = self.requests.empty.get(reason, 0) + 1

    def answered(self, completion: Completion) -> None:
        if completion.suggestions:
            self.requests.answered += 1
        else:
            self.empty(completion.reason or "nothing")
        self.requests.typed_through += completion.typed_through
        self.requests.joined += completion.joined

    def worked(self, completion: Completion) -> None:
        """What the engine did, also where nobody waits for the answer any more."""
        counters = completion.explanation.counters
        for total, part in ((self.drafted, counters.drafted), (self.accepted, counters.accepted)):
            for source, number in part.items():
                total[source] = total.get(source, 0) + number
        self.target_steps += counters.target_steps
        self.generated_tokens += counters.generated_tokens
        if counters.target_steps:
            tokens = counters.prefill_tokens
            bucket = tokens if tokens <= 64 else 1 << (tokens - 1).bit_length()
            self.prefill[bucket] = self.prefill.get(bucket, 0) + 1
        self.prefill_tokens += counters.prefill_tokens
        self.reused_tokens += counters.reused_tokens

    def acceptance(self) -> dict[str, float]:
        return {
            source: round(self.accepted.get(source, 0) / number, 4)
            for source, number in self.drafted.items()
            if number
        }
