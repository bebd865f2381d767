"""Tokens a target step, with lookup over the workspace and over the buffer alone, counted on the real parts.

The index is the context process's own service over files on disk; the drafters, the policy and the loop are
the engine's. Two targets: one that writes what the person wrote (`TruthRunner`), which measures drafting by
itself, and a model, which measures it on what that model writes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from msgspec import Struct

from copilotd.completion.ask import Ask
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, SessionSettings
from copilotd.context.index import IndexReader, IndexWriter, View, allocate
from copilotd.context.messages import Begin, Buffer, Folders, Visible
from copilotd.context.process import Library
from copilotd.context.service import Service
from copilotd.engine.engine import Engine
from copilotd.engine.generation import Counters, GenerationRequest, Surroundings
from copilotd.engine.policy import Costs
from copilotd.models.tokenizer import TokenizerVocabulary
from edits.scenarios import Scenario, Stretch

CLIENT = "bench"
FLAT = Costs(target=((1, 10.0), (9, 10.8)))
"""a wider step costs hardly more, as on a GPU: what a draft is worth there is tokens a step"""


class Workspace:
    """A scenario's files on disk, walked and indexed as the context process does it."""

    def __init__(self, scenario: Scenario, vocabulary: TokenizerVocabulary, folder: Path) -> None:
        for path, text in scenario.disk.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.path = folder / scenario.path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        first = scenario.stretches[0]
        self.path.write_text(first.gone or first.before + first.after)
        self._index = allocate()
        self._reader = IndexReader(self._index)
        self._service = Service(Begin(""), IndexWriter(self._index), vocabulary.encode)
        self._view = View()
        self._say(Folders(CLIENT, (str(folder),)))

    def library(self, stretch: Stretch) -> Library:
        """What lookup sees when the stretch is about to be written."""
        for text in filter(None, (stretch.gone, stretch.before + stretch.after)):
            self._say(Buffer(CLIENT, str(self.path), "", text))
        return Library(self._reader, self._view.around(str(self.path)), str(self.path))

    def close(self) -> None:
        self._service.close()
        self._reader.close()
        os.close(self._index)

    def _say(self, message: Folders | Buffer) -> None:
        self._service.handle(message)
        while self._service.step():
            pass
        for said in self._service.outbox:
            if isinstance(said, Visible):
                self._view = View(said.roots, said.owner, frozenset(said.hidden), said.buffers)
        self._service.outbox.clear()


@contextmanager
def indexed(scenario: Scenario, vocabulary: TokenizerVocabulary) -> Iterator[Workspace]:
    with tempfile.TemporaryDirectory(prefix="copilotd-bench-") as folder:
        workspace = Workspace(scenario, vocabulary, Path(folder).resolve() / "work")
        try:
            yield workspace
        finally:
            workspace.close()


class _Cache:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ids: list[int] = []

    def truncate(self, length: int) -> None:
        del self.ids[length:]

    def become(self, other: _Cache, length: int) -> bool:
        return False


class TruthRunner:
    """A target that writes `sequence`, whatever is proposed."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.max_tokens = 1 << 16
        self.chunk = 64
        self.sequence: list[int] = []

    def new_cache(self, capacity: int) -> _Cache:
        return _Cache(capacity)

    def cache_bytes(self, capacity: int) -> int:
        return 8 * capacity

    def step(self, cache: _Cache, ids: Sequence[int], rows: int) -> torch.Tensor:
        cache.ids.extend(ids)
        logits = torch.zeros(rows, self.vocabulary)
        for row, end in enumerate(range(len(cache.ids) - rows + 1, len(cache.ids) + 1)):
            logits[row, self.sequence[min(end, len(self.sequence) - 1)]] = 1.0
        return logits


class Truth:
    """Drafting for somebody who writes the truth: one engine, whose estimates last as in a session."""

    def __init__(self, vocabulary: TokenizerVocabulary, max_draft_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._runner = TruthRunner(vocabulary.size)
        self._engine = Engine(
            self._runner, context_tokens=1 << 14, max_draft_tokens=max_draft_tokens, costs=FLAT
        )

    def write(self, scenario: Scenario, stretch: Stretch, library: Library | None) -> Counters:
        encode = self._vocabulary.encode
        truth = encode(stretch.truth)
        self._runner.sequence = [0, *truth]
        generation = self._engine.generate(
            GenerationRequest(
                prompt=[0],
                surroundings=Surroundings(encode(stretch.before), encode(stretch.after)),
                library=library,
                slot=((CLIENT, scenario.path), 0),
                max_new_tokens=len(truth),
            ),
            lambda: False,
            lambda *told: False,
        )
        if generation.ids != truth:
            raise AssertionError("the drafts changed what was written")
        return generation.counters


class Written(Struct):
    """By a model."""

    counters: Counters
    texts: list[str]


class Model:
    """Completions of a real pair's target, asked for as the truth is typed: at the beginning of every line."""

    def __init__(self, max_draft_tokens: int) -> None:
        from copilotd.backends.local import LocalBackend
        from copilotd.config import Settings

        daemon = DaemonSettings(
            model="embedded", draft="none", threads=1, max_draft_tokens=max_draft_tokens, speculation="auto"
        )
        self._backend = LocalBackend.load(Settings(daemon=daemon), lambda name, done, total: None)
        self._daemon = daemon

    def write(self, scenario: Scenario, stretch: Stretch, library: Library | None) -> Written:
        self._backend.engine.costs.target = FLAT.target
        completer = Completer(self._backend, self._daemon)
        written = Written(Counters(), [])
        for typed in _line_starts(stretch.truth):
            self._backend.prefill_tokens_per_s = 2000.0  # measured anew each time: it decides the prompt
            ask = Ask(
                client=CLIENT,
                uri=f"file:///{scenario.path}",
                language=scenario.language,
                path=scenario.path,
                text=stretch.before + typed + stretch.after,
                offset=len(stretch.before + typed),
                settings=SessionSettings(max_latency_ms=0),
                library=library,
            )
            completion = completer.complete(ask, lambda: False, None)
            written.counters.add(completion.explanation.counters)
            written.texts += [one.text for one in completion.suggestions]
        completer.close_client(CLIENT)
        return written

    def close(self) -> None:
        self._backend.close()


def _line_starts(text: str) -> Iterator[str]:
    """What stands when a line has been begun: its indentation and nothing else."""
    done = ""
    for line in text.splitlines(keepends=True):
        if line.strip():
            yield done + line[: len(line) - len(line.lstrip())]
        done += line
