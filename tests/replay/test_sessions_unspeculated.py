"""The prompts of recorded typing, written once more with speculation off: the same tokens, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from copilotd.backends.local import LocalBackend
from copilotd.completion.ask import Ask
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, SessionSettings, Settings
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Trace, load

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


def asks(trace: Trace) -> Iterator[Ask]:
    buffers: dict[str, Buffer] = {}
    for event in trace.events:
        if event.open is not None:
            buffers[event.open] = Buffer(trace.files.get(event.open, ""))
        elif event.change is not None:
            buffers[event.change].apply(event.edits)
        elif event.complete is not None and event.at is not None:
            buffer = buffers[event.complete]
            yield Ask(
                client="a",
                uri=f"file:///w/{event.complete}",
                language=Path(event.complete).suffix,
                path=event.complete,
                repository="w",
                text=buffer.text,
                offset=buffer.offset(event.at),
                settings=SessionSettings(max_latency_ms=0),
            )


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
