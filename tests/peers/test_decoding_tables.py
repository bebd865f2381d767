"""A contender in its own process, and what is said of the figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers import tables
from peers.decoding import Found, Row
from peers.llama import MissingPeer
from peers.prompts import cut
from peers.screen import Stroke
from peers.sessions import Session
from peers.weights import EMBEDDED
from peers.worker import Asked, Job, Run, Worker

from copilotd.models.tokenizer import TokenizerVocabulary

pytestmark = pytest.mark.filterwarnings(
    "error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
"""a contender's process and its pipes do not outlive it"""


def run(ids: list[int], ms: float, accepted: int = 0) -> Run:
    steps = len(ids) - accepted
    return Run(
        ids=ids, timed=len(ids) - 1, decode_ms=ms, prompt_tokens=500, prompt_ms=1000.0, steps=steps,
        drafted=2 * accepted, accepted=accepted, counted_ms=ms, plain_ms=2 * ms,
    )  # fmt: skip


def row(contender: str, *runs: Run) -> Row:
    return Row(contender, "copied", list(runs), rss_mb=100.4)


def test_copilotd_decodes_the_same_plain_and_speculating_in_a_process_of_its_own() -> None:
    vocabulary = TokenizerVocabulary.from_folder(EMBEDDED / "target")
    prompt = next(cut(vocabulary, "copied", 1, 200))
    job = Job(kind="copilotd", target=str(EMBEDDED / "target"), quantisation="int8", threads=1, context=300)
    with Worker(job) as worker:
        plain, speculating, echo = (worker.run(Asked(prompt, 16, mode)) for mode in ("plain", "auto", "echo"))
        assert worker.about["name"] == "copilotd int8"
        assert worker.rss_mb > 50
    assert plain.ids == speculating.ids
    assert plain.steps == len(plain.ids)
    assert plain.prompt_tokens == len(prompt.ids)
    assert 0.9 < plain.counted_ms / plain.plain_ms < 1.2
    assert speculating.steps <= plain.steps
    assert echo.ids == plain.ids
    assert echo.steps < plain.steps


def test_a_contender_that_cannot_be_loaded_leaves_nothing_open(tmp_path: Path) -> None:
    job = Job(kind="copilotd", target=str(tmp_path / "none"), threads=1, context=300)
    with pytest.raises(MissingPeer, match="the process of copilotd ended"), Worker(job):
        pass


def test_ratios_are_of_the_same_run() -> None:
    ids = list(range(41))
    found = Found(
        rows=[
            row("copilotd nf4, plain", run(ids, 800.0)),
            row("copilotd nf4, speculating", run(ids, 400.0, accepted=20)),
            row("llama.cpp Q4_0, plain", run(ids, 1000.0)),
            row("llama.cpp Q4_0, ngram-mod", run(ids, 500.0)),
            row("transformers bf16, plain", run(ids, 100.0)),
            row("transformers bf16, prompt lookup", run(ids, 1600.0)),
        ],
        about={"name": "copilotd nf4", "bytes_per_token": 400_000_000, "bandwidth": 40e9, "ceiling": 2.5},
        missing=[],
    )
    said = "\n".join(tables.ratios(found))
    assert "speculating 2.00x plain, acceptance 0.50, the same text: yes" in said
    assert "of 1 pairs: median 0.50, worst 0.50" in said
    assert "calibrated cost, speculating / plain: 0.50" in said
    assert "plain / llama.cpp's Q4_0 plain (llama.cpp Q4_0, plain): 1.25x" in said
    assert "speculating / llama.cpp's best (llama.cpp Q4_0, ngram-mod): 1.25x" in said
    assert "best assisted (transformers bf16, prompt lookup): 4.00x" in said
    assert "50% of the 40.0 GB/s" in said
    lines = tables.decoding(found, "0.5B").splitlines()
    assert lines[0].startswith("| 0.5B shape | copied, tokens/s (per step) |")
    assert lines[3] == "| copilotd nf4, speculating | 100.0 (1.95) | 500 | 100 |"


def test_sessions_are_compared_line_by_line() -> None:
    def session(contender: str, ms: float, line: str) -> Session:
        strokes = [
            Stroke(0.0, ms=ms, asked=True, line=line),
            Stroke(1.0, ms=1.0, asked=True, line=line, typed_through=True),
            Stroke(2.0),
        ]
        return Session(contender, "t", strokes, 200.0)

    found = [session("copilotd", 40.0, "return x"), session("llama.cpp", 100.0, "return x")]
    assert "| copilotd | 3 | 1 | 40 | 40 | 1 |" in tables.sessions(found, "0.5B")
    said = "\n".join(tables.session_ratios(found))
    assert "first line: p50 0.40, p95 0.40" in said
    assert "at 2 keys" in said
