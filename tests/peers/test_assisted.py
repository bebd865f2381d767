"""transformers asked as llama-server's /infill is: its prompt, its time limit, and what is kept in between."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peers.assisted import Lines
from peers.llama import Completion
from peers.prompts import Prompt, filled_in, window
from peers.weights import EMBEDDED, weights
from peers.worker import Asked, Job, Worker

from copilotd.models.tokenizer import TokenizerVocabulary

pytestmark = pytest.mark.filterwarnings(
    "error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
"""a contender's process and its pipes do not outlive it"""

VOCABULARY = TokenizerVocabulary.from_folder(EMBEDDED / "target")
ABOVE = "import os\n\n\ndef first(path):\n    return os.stat(path).st_size\n\n\ndef size(path):\n"
BELOW = "\n\n\nprint(size('a'))\n"


def test_the_prompt_is_the_servers_with_its_shares_of_the_window() -> None:
    ids = filled_in(VOCABULARY, "a = 1\n" * 300, "b = 2\n" * 300, "c =", 400)
    text = "".join(VOCABULARY.marker(at) or VOCABULARY.decode([at]) for at in ids)
    names, _, rest = text.partition("<|fim_prefix|>")
    before, _, after = rest.partition("<|fim_suffix|>")
    assert names == "<|repo_name|>myproject\n<|file_sep|>filename\n"
    assert before.endswith("a = 1\nc =")
    assert after.startswith("b = 2\n")
    assert after.endswith("<|fim_middle|>")
    line = len(VOCABULARY.encode("c ="))
    assert len(VOCABULARY.encode(before)) == 300 + line
    assert len(VOCABULARY.encode(after.removesuffix("<|fim_middle|>"))) == 100 - 2 - line


def test_an_answer_ends_at_a_lines_end_past_its_time() -> None:
    prompt = VOCABULARY.encode("x = ")

    def stops(limit_ms: float) -> tuple[list[bool], Lines]:
        lines, ids = Lines(VOCABULARY, len(prompt), limit_ms), list(prompt)
        stopped = []
        for part in ("\n", "a", " = 1", "\n", "b", "\n"):
            ids += VOCABULARY.encode(part)
            stopped.append(bool(lines(torch.tensor([ids]), None)))
        return stopped, lines

    stopped, lines = stops(limit_ms=0.0)
    assert stopped == [False, False, False, True, False, True]  # the first round starts the clock
    assert lines.text == "\na = 1\nb\n"
    assert lines.line == lines.ended[3][0]
    assert not any(stops(limit_ms=60_000)[0])


def test_what_prompts_begin_with_in_common_is_kept_and_changes_no_answer(tmp_path: Path) -> None:
    pair = weights("embedded", "embedded", tmp_path)
    job = Job(
        kind="transformers",
        target=str(pair.floating("target")),
        draft=str(pair.floating("draft")),
        quantisation="fp32",
        threads=1,
        context=1024,
    )
    with Worker(job) as worker:

        def filled(mode: str, middle: str) -> tuple[Completion, list[int]]:
            said = worker.infill(mode, ABOVE, BELOW, middle, 24, 60_000)
            ids = filled_in(VOCABULARY, ABOVE, BELOW, middle, window(job.context, 24))
            plain = worker.run(Asked(Prompt("", ids, [], []), 24, "plain"))
            assert said.ids == plain.ids
            return said, ids

        for mode in ("lookup", "draft"):
            first, ids = filled(mode, "    return")
            assert first.prompt_tokens == len(ids)
            assert first.text == VOCABULARY.decode(first.ids)
            assert first.line_ms is not None
            assert filled(mode, "    return")[0].prompt_tokens == 1
            after = len(VOCABULARY.encode(BELOW))
            assert after < filled(mode, "    return os")[0].prompt_tokens <= after + 4
