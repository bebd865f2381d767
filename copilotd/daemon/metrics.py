"""What the daemon counts for `copilotd metrics`: numbers under labels from fixed sets, no text of anybody's.

Counting is all that happens here, on the socket loop; what Prometheus is told is written by the process of
`copilotd metrics`, so that the process with the models does nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct, field

from copilotd.completion.ask import Completion
from copilotd.daemon.status import Status

K = TypeVar("K")
V = TypeVar("V")

BOUNDS_MS = (1, 2.5, 5, 10, 25, 50, 100, 150, 250, 500, 1000, 2500, 5000, 10000)
"""upper bounds of a histogram's buckets; a last one has no bound"""

OTHER = "other"
LANGUAGES = frozenset(
    "bat bibtex c clojure coffeescript cpp csharp css dart diff dockerfile elixir elm erlang fsharp go graphql "
    "groovy haskell html ini java javascript javascriptreact json jsonc julia kotlin latex less lua makefile "
    "markdown nix objective-c objective-cpp ocaml perl php plaintext powershell proto python r restructuredtext "
    "ruby rust scala scss shellscript sql svelte swift terraform tex toml typescript typescriptreact vb vue xml "
    "yaml zig".split()
)
"""A language id comes from the editor and may be any text: these are named, every other one is `other`."""
_WORD = re.compile(r"[a-z][a-z0-9 _-]{0,31}")


class Histogram(Struct):
    """Durations in milliseconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    """in each bucket by itself"""
    sum_ms: float = 0.0

    def add(self, ms: float) -> None:
        self.counts[bisect_left(BOUNDS_MS, ms)] += 1
        self.sum_ms += ms


class Work(Struct, frozen=True):
    """Whose tokens."""

    model: str
    language: str


class Drafts(Struct, frozen=True):
    model: str
    language: str
    source: str


class Empty(Struct, frozen=True):
    language: str
    reason: str


class Tokens(Struct):
    prefilled: int = 0
    reused: int = 0
    generated: int = 0
    target_steps: int = 0


class Drafted(Struct):
    proposed: int = 0
    reached: int = 0
    accepted: int = 0


class Requests(Struct):
    """Of one language."""

    answered: int = 0
    cancelled: int = 0
    """by the editor, or by a newer request"""
    typed_through: int = 0
    joined: int = 0
    shown: int = 0
    """texts; one that is typed along stays one"""
    accepted: int = 0
    """taken whole"""
    accepted_in_part: int = 0
    """takings of a word or a line"""
    accepted_characters: int = 0
    kept: int = 0
    """of those taken, whole or in part: still there half a minute later, but for white space"""
    changed: int = 0
    """… and not there any more"""


class Metrics(Struct):
    """Counted over the daemon's life."""

    requests: list[tuple[str, Requests]] = field(default_factory=list)
    """by language"""
    empty: list[tuple[Empty, int]] = field(default_factory=list)
    tokens: list[tuple[Work, Tokens]] = field(default_factory=list)
    drafts: list[tuple[Drafts, Drafted]] = field(default_factory=list)
    stages: list[tuple[str, Histogram]] = field(default_factory=list)
    """waiting, prompt, prefill, decode, text: the parts of `answer`, in which the model wrote;
    memory: whole answers without the model"""


class Report(Struct):
    """What `copilotd metrics` is told by the daemon."""

    metrics: Metrics
    status: Status


class Counting:
    """Takes in what happens."""

    def __init__(self) -> None:
        self._requests: dict[str, Requests] = {}
        self._empty: dict[Empty, int] = {}
        self._tokens: dict[Work, Tokens] = {}
        self._drafts: dict[Drafts, Drafted] = {}
        self._stages: dict[str, Histogram] = {}

    def requests(self, language: str) -> Requests:
        """The counters of a language, whatever the editor calls it."""
        return self._requests.setdefault(known(language), Requests())

    def empty(self, language: str, reason: str) -> None:
        key = Empty(known(language), word(reason))
        self._empty[key] = self._empty.get(key, 0) + 1

    def worked(self, language: str, model: str, completion: Completion) -> None:
        """What the engine did, also where nobody waits for the answer any more."""
        counters = completion.explanation.counters
        if _wrote(completion):
            tokens = self._tokens.setdefault(Work(model, known(language)), Tokens())
            tokens.prefilled += counters.prefill_tokens
            tokens.reused += counters.reused_tokens
            tokens.generated += counters.generated_tokens
            tokens.target_steps += counters.target_steps
        for source, proposed in counters.drafted.items():
            key = Drafts(model, known(language), word(source))
            drafted = self._drafts.setdefault(key, Drafted())
            drafted.proposed += proposed
            drafted.reached += counters.reached.get(source, 0)
            drafted.accepted += counters.accepted.get(source, 0)

    def answered(
        self, language: str, completion: Completion, waited_ms: float, answer_ms: float, *, new: bool
    ) -> None:
        """Somebody got this, `answer_ms` after asking, `waited_ms` of them for others' requests; `new`: it is
        not what was left of the text shown before."""
        requests = self.requests(language)
        if completion.suggestions:
            requests.answered += 1
            requests.shown += new
        else:
            self.empty(language, completion.reason or "nothing")
        requests.typed_through += completion.typed_through
        requests.joined += completion.joined
        if not _wrote(completion):
            self._stage("memory", answer_ms)
            return
        counters = completion.explanation.counters
        laid = sum(reason.ms for reason in completion.explanation.reasons if reason.stage == "prompt")
        parts = {
            "waiting": waited_ms,
            "prompt": laid,
            "prefill": counters.prefill_ms,
            "decode": counters.decode_ms,
        }
        for stage, ms in parts.items():
            self._stage(stage, ms)
        self._stage("text", max(0.0, answer_ms - sum(parts.values())))
        self._stage("answer", answer_ms)

    def _stage(self, stage: str, ms: float) -> None:
        self._stages.setdefault(stage, Histogram()).add(ms)

    def metrics(self) -> Metrics:
        return Metrics(
            _listed(self._requests),
            _listed(self._empty),
            _listed(self._tokens),
            _listed(self._drafts),
            _listed(self._stages),
        )


def _wrote(completion: Completion) -> bool:
    """Whether a model was asked."""
    return any(reason.stage == "generate" for reason in completion.explanation.reasons)


def _listed(table: Mapping[K, V]) -> list[tuple[K, V]]:
    return list(table.items())


def known(language: str) -> str:
    return language if language in LANGUAGES else OTHER


def word(text: str) -> str:
    """A word of our own; anything that does not look like one is not passed on."""
    return text if _WORD.fullmatch(text) else OTHER
