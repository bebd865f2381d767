"""The prompts of recorded typing, written once more with speculation off: the same tokens, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from copilotd.backends.local import LocalBackend
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, Settings
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.replay.trace import load
from tests.support.trace_asks import asks

TRACES = Path(__file__).with_name("traces")
REQUESTS = 30
"""of each trace"""


class Twice:
    """Writes what is asked with drafts, and again without, in a slot of its own. Implements `Backend`."""

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self.compared = self.drafted = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    @property
    def prefill_tokens_per_s(self) -> float:
        return 1e9  # no prompt is short because this machine is slow

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        written = self._backend.generate(request, cancelled, emit)
        ids: list[int] = []

        def as_far(more: Sequence[int], *_: object) -> bool:
            ids.extend(more)
            return len(ids) >= len(written.ids)

        # what ended the first, a word that is not wanted here, ends the second after as many tokens
        plain = replace(request, speculation="off", slot=(request.slot, "plain"))
        again = self._backend.generate(plain, cancelled, as_far)
        assert again.ids == written.ids
        assert again.logprobs == written.logprobs
        self.compared += 1
        self.drafted += sum(written.counters.accepted.values())
        return written


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    daemon = DaemonSettings(model="embedded", draft="embedded-draft", threads=1, speculation="on")
    backend = LocalBackend.load(Settings(daemon=daemon), lambda name, done, total: None)
    yield backend
    backend.close()


@pytest.mark.parametrize(
    "name", ["networkx-vitality", "rxjs-distinct", "httpclient-content-body", "graphile-worker-insert"]
)
def test_the_same_suggestions_with_speculation_off(backend: LocalBackend, name: str) -> None:
    twice = Twice(backend)
    completer = Completer(twice, DaemonSettings(speculation="on"))  # type: ignore[arg-type]
    for number, ask in enumerate(asks(load(TRACES / f"{name}.jsonl"))):
        if number == REQUESTS:
            break
        completer.complete(ask, lambda: False, None)
        while completer.idle(lambda: False):
            pass
    assert twice.compared > 1
    assert twice.drafted > 0
