"""Completion on the embedded pair, which is real: trained, quantised, drafting."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

import pytest

from copilotd.backends.local import LocalBackend
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, SessionSettings, Settings
from tests.completion.asking import ask, at, never
from tests.completion.typist import Typist

SHORT = SessionSettings(max_new_tokens=16)


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    daemon = DaemonSettings(model="embedded", draft="embedded-draft", threads=1, context_tokens=1024)
    backend = LocalBackend.load(Settings(daemon=daemon), lambda name, done, total: None)
    yield backend
    backend.close()


def test_drafts_change_no_text(backend: LocalBackend, sources: list[str]) -> None:
    chance = random.Random(3)
    on, off = (Completer(backend, DaemonSettings(speculation=way)) for way in ("on", "off"))
    shown = drafted = 0
    for source in sources:
        for _ in range(4):
            one = at(source, chance.randrange(1, len(source)), settings=SHORT)
            backend.prefill_tokens_per_s = 1e9  # measured anew each time: it decides how long a prompt is
            with_drafts = on.complete(one, never, None)
            backend.prefill_tokens_per_s = 1e9
            without = off.complete(one, never, None)
            assert with_drafts.suggestions == without.suggestions
            shown += bool(with_drafts.suggestions)
            drafted += sum(with_drafts.explanation.counters.accepted.values())
    assert shown
    assert drafted


def test_a_typed_session(backend: LocalBackend, sources: list[str]) -> None:
    source = max(sources, key=len)
    place = source.index("\n", len(source) // 2) + 1
    typist = Typist(source[:place] + "‸\n" + source[place:])
    completer = Completer(backend)
    counts = []
    for key in "total = sum(values)\nif (total > limix\bt) {\nreturn total\b\b\b\b\b0;\n":
        typist.press(key)
        completion = completer.complete(at(typist.text, typist.cursor, settings=SHORT), never, None)
        if completion.explanation.counters.target_steps:
            counts.append(completion.explanation.counters.prefill_tokens)
        while completer.idle(never):
            pass
    assert counts.pop(0) > 100
    assert statistics.median(counts) <= 1
    assert statistics.quantiles(counts, n=20)[-1] <= 4


def test_a_file_in_windows_line_ends(backend: LocalBackend) -> None:
    one = ask("def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        ‸\r\n    return acc\r\n")
    for suggestion in Completer(backend).complete(one, never, None).suggestions:
        assert "\r" not in suggestion.text
