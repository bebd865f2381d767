"""What a model is worth on holes in held-out packages, and what a draft is worth to it.

A hole is the rest of one line: the model sees what is above and, if it can infill, what is below. Prompts,
healing, decoding and lookup are the product's own.
"""

from __future__ import annotations

import ast
import math
import random
import re
import warnings
from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Literal, Protocol

import torch
from msgspec import Struct

from copilotd.completion.ask import Ask
from copilotd.completion.healing import Healing, TokenIndex
from copilotd.completion.prompt import PromptWriter
from copilotd.config import DaemonSettings
from copilotd.engine.constraint import Walk
from copilotd.engine.drafters.base import Drafter, Proposal
from copilotd.engine.drafters.draft_model import NAME, DraftModel
from copilotd.engine.drafters.lookup import Lookup
from copilotd.engine.generation import Counters, Generation, GenerationRequest, Sampling, Surroundings
from copilotd.engine.prefix import feed, reuse
from copilotd.engine.runner import Runner
from copilotd.engine.sampling import Randomness, Seeded
from copilotd.engine.slots import Slots
from copilotd.engine.speculate import speculate
from copilotd.models.load import Place, load_model
from copilotd.models.tokenizer import TokenizerVocabulary
from pair.corpus import Document

Kind = Literal["after indentation", "at a word's end", "inside a word", "in mid-line of code"]
KINDS: tuple[Kind, ...] = ("after indentation", "at a word's end", "inside a word")
MID_LINE: tuple[Kind, ...] = ("in mid-line of code",)
"""at a word's end that is not the line's first word, in a line that does not begin as a comment"""
_CUT = {
    "after indentation": re.compile(r"(?<=\n)[^\S\n]*(?=\S)"),
    "at a word's end": re.compile(r"(?<=\w)\b(?=[^\n]*\S)"),
    "inside a word": re.compile(r"(?<=\w\w)(?=\w)"),
    "in mid-line of code": re.compile(r"(?<=\w)\b(?=[^\n]*\S)"),
}
_CODE = re.compile(r"\s*(?!\s|#|//|/?\*|--)[^\n]*\w\W+\w+\Z")
LINE_TOKENS = 48
DRAFT_TOKENS = 4
LARGEST = 40_000
"""characters of a document with holes"""


class Hole(Struct, frozen=True):
    document: Document
    cursor: int
    truth: str
    """the rest of the line, blanks at its end left out"""
    kind: Kind

    @property
    def before(self) -> str:
        return self.document.text[: self.cursor]

    @property
    def after(self) -> str:
        return self.document.text[self.cursor + len(self.truth) :]


def holes(
    documents: Sequence[Document], language: str, count: int, seed: int, kinds: tuple[Kind, ...] = KINDS
) -> list[Hole]:
    """The kinds in turn; documents by length, at most one hole in 500 characters."""
    rng = random.Random(f"{seed} {language}")
    texts = [d for d in documents if d.language == language and len(d.text) < LARGEST]
    found: list[Hole] = []
    taken: set[tuple[str, str, int]] = set()
    weights = [len(document.text) for document in texts]
    for _ in range(100 * count if texts else 0):
        if len(found) == count:
            break
        document = rng.choices(texts, weights)[0]
        kind = kinds[len(found) % len(kinds)]
        cut = _CUT[kind].search(document.text, rng.randrange(len(document.text)))
        if cut is None:
            continue
        cursor = cut.end()
        typed = document.text[document.text.rfind("\n", 0, cursor) + 1 : cursor]
        if kind in MID_LINE and not _CODE.match(typed):
            continue
        truth = document.text[cursor:].partition("\n")[0].rstrip()
        place = (document.package, document.path, cursor // 500)
        if len(truth) >= 3 and place not in taken:
            taken.add(place)
            found.append(Hole(document, cursor, truth, kind))
    return found


class Answerer(Protocol):
    def line(self, hole: Hole) -> str:
        """What it would write up to the end of the line."""
        ...


class Prompt(Struct, frozen=True):
    request: GenerationRequest
    dropped: str
    """typed characters that the output begins with"""


class Model:
    """A folder of weights, asked as the product asks."""

    def __init__(self, folder: Path, context_tokens: int, quantisation: str = "auto") -> None:
        settings = DaemonSettings(quantisation=quantisation)
        place = Place(folder, folder.name)
        loaded = load_model(place, settings, torch.device("cpu"), lambda *_: None, draft=False)
        self.runner: Runner = loaded.runner
        self.quantisation = loaded.quantisation
        self.vocabulary: TokenizerVocabulary = loaded.vocabulary
        self._context = min(context_tokens, self.runner.max_tokens)
        self._writer = PromptWriter(self.vocabulary, self._context)
        self._index = TokenIndex(self.vocabulary)
        self._cache = self.runner.new_cache(self._context)

    def prompt(self, hole: Hole, temperature: float = 0.0, seed: int = 0) -> Prompt:
        text = hole.before + hole.after
        ask = Ask(
            client="evaluate",
            uri=hole.document.path,
            language=hole.document.language,
            path=hole.document.path,
            repository=hole.document.package.rpartition("/")[2],
            text=text,
            offset=hole.cursor,
        )
        layout = self._writer.lay(ask, self._writer.budget(ask), 0, None)
        self._writer.surround(layout, ask)
        filled = self._writer.fill(layout, ask)
        typed = filled.ids[: filled.kept]
        dropped = b"".join(map(self.vocabulary.token_bytes, filled.ids[filled.kept :]))
        request = GenerationRequest(
            prompt=filled.prompt,
            surroundings=Surroundings(
                [*layout.above, *layout.prefix_ids, *typed], [*layout.suffix_ids, *layout.below]
            ),
            max_new_tokens=LINE_TOKENS,
            stop_ids=self.vocabulary.control,
            draft_until=self._index.with_newline,
            constraint=Healing(self._index, self.vocabulary, dropped) if dropped else None,
            sampling=Sampling(temperature=temperature, seed=seed),
            slot="evaluate",
        )
        return Prompt(request, dropped.decode())

    def generate(self, prompt: Prompt, drafter: Drafter | None = None) -> Generation:
        """One line; ended as well where the output goes round in circles."""
        written: list[int] = []

        def emit(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
            written.extend(ids)
            text = self.vocabulary.decode(written)[len(prompt.dropped) :]
            return "\n" in text.lstrip(" \t") or loops(written)

        return speculate(
            self.runner,
            self._cache,
            drafter or Silent(),
            prompt.request,
            Seeded(prompt.request.sampling.seed),
            lambda: False,
            emit,
            max_new_tokens=min(LINE_TOKENS, self._context - len(prompt.request.prompt) - 1),
            max_draft_tokens=DRAFT_TOKENS if drafter else 0,
        )

    def line(self, hole: Hole) -> str:
        prompt = self.prompt(hole)
        text = self.vocabulary.decode(self.generate(prompt).ids)
        return first_line(text[len(prompt.dropped) :] if text.startswith(prompt.dropped) else "")

    def bits(self, hole: Hole) -> tuple[float, int]:
        """(bits, bytes) of the truth and its line's end, with what healing would drop, at the plain law."""
        prompt = self.prompt(hole)
        ids = self.vocabulary.encode(prompt.dropped + hole.truth + "\n")
        ids = ids[: max(1, self._context - len(prompt.request.prompt))]
        sequence = [*prompt.request.prompt, *ids]
        common = len(sequence) - len(ids)
        self._cache.truncate(min(reuse(self._cache, sequence), common - 1))
        feed(self.runner, self._cache, sequence[: common - 1], leave=1, cancelled=lambda: False)
        total, at = 0.0, len(self._cache.ids)
        while at < len(sequence) - 1:
            step = sequence[at : min(at + self.runner.chunk, len(sequence) - 1)]
            logits = self.runner.step(self._cache, step, rows=len(step))
            laws = torch.log_softmax(logits.double(), -1)
            for row, law in enumerate(laws):
                if at + row + 1 >= common:
                    total -= float(law[sequence[at + row + 1]]) / math.log(2)
            at += len(step)
        return total, len(b"".join(self.vocabulary.token_bytes(token) for token in ids))


class LookupAlone:
    """Prompt lookup without any model: what followed the longest recent match, if healing lets it."""

    def __init__(self, model: Model) -> None:
        """`model` lends its tokenizer."""
        self._model = model

    def line(self, hole: Hole) -> str:
        prompt = self._model.prompt(hole)
        lookup = Lookup()
        lookup.begin("evaluate", prompt.request.surroundings)
        ids = next((guess.ids for guess in lookup.guesses([], LINE_TOKENS)), [])
        walk = Walk(prompt.request.constraint)
        ids = ids[: len(walk.ahead(ids)) - 1]
        text = self._model.vocabulary.decode(ids)
        return first_line(text[len(prompt.dropped) :] if text.startswith(prompt.dropped) else "")


class Silent:
    """Plain decoding."""

    def begin(self, request: GenerationRequest, randomness: Randomness) -> None: ...

    def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: object) -> Proposal:
        return Proposal()

    def learn(self, accepted: int, fresh: Sequence[int], rows: int, ms: float) -> None: ...


class FixedDraft:
    """The draft model alone, always asked for `limit` ids."""

    def __init__(self, draft: Model, vocabulary: int) -> None:
        runner = draft.runner
        self._model = DraftModel(runner, Slots(runner, runner.max_tokens, 1), vocabulary)

    def begin(self, request: GenerationRequest, randomness: Randomness) -> None:
        self._walk, self._walked = Walk(request.constraint), 0
        self._model.begin(request, randomness)

    def propose(self, emitted: Sequence[int], limit: int, riding: int, cancelled: object) -> Proposal:
        self._walk.advance(emitted[self._walked :])
        self._walked = len(emitted)
        drawn = self._model.draw(emitted, limit, self._walk, lambda _: True, lambda: False)
        return Proposal(drawn.ids, [NAME] * len(drawn.ids), drawn.q, len(drawn.ids))

    def learn(self, accepted: int, fresh: Sequence[int], rows: int, ms: float) -> None: ...


def first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip()


def loops(ids: Sequence[int], times: int = 3) -> bool:
    """Whether the last few ids are one short piece, over and over."""
    return (
        any(len(ids) >= times * n and list(ids[-times * n :]) == list(ids[-n:]) * times for n in range(1, 8))
        and len(ids) >= 6
    )


class Quality(Struct, kw_only=True):
    holes: int = 0
    exact: int = 0
    """holes whose line is right to its end"""
    right: int = 0
    characters: int = 0
    shares: float = 0.0
    """right characters of each line's, summed: long lines count no more than short ones"""
    bits: float = 0.0
    bytes: int = 0
    parsed: int = 0
    parsable: int = 0

    @property
    def exact_share(self) -> float:
        return self.exact / self.holes

    @property
    def right_share(self) -> float:
        """of the truth's characters, those that come right from the start"""
        return self.right / self.characters

    @property
    def mean_share(self) -> float:
        """of a line that comes right from the start, on average over the lines"""
        return self.shares / self.holes

    @property
    def bits_per_byte(self) -> float:
        return self.bits / self.bytes if self.bytes else math.nan

    @property
    def parse_share(self) -> float:
        return self.parsed / self.parsable if self.parsable else math.nan

    @classmethod
    def of(cls, answered: Iterable[tuple[Hole, str]]) -> Quality:
        quality = cls()
        for hole, answer in answered:
            quality.add(hole, answer)
        return quality

    def add(self, hole: Hole, answer: str) -> None:
        self.holes += 1
        self.exact += answer == hole.truth
        right = sum(takewhile(bool, map(eq, answer, hole.truth)))
        self.right += right
        self.shares += right / len(hole.truth)
        self.characters += len(hole.truth)
        if sound(hole, hole.truth):
            self.parsable += 1
            self.parsed += sound(hole, answer)

    def add_bits(self, bits: float, size: int) -> None:
        self.bits += bits
        self.bytes += size


def sound(hole: Hole, line: str) -> bool:
    """Whether the document with `line` in the hole parses (Python), or its brackets still close (others)."""
    if hole.document.language == "python":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ast.parse(hole.before + line + hole.after)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return False
        return True
    return _brackets(line) == _brackets(hole.truth)


def _brackets(line: str) -> str:
    """What is left of the line's brackets once pairs are taken out."""
    left = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`", "", line)
    left = re.sub(r"[^()\[\]{}]", "", left)
    while left != (left := re.sub(r"\(\)|\[\]|\{\}", "", left)):
        pass
    return left


class Drafting(Struct, frozen=True):
    acceptance: float
    """accepted of proposed"""
    alpha: float
    """accepted of positions reached"""
    tokens_per_step: float


def drafting(target: Model, draft: Model, found: Sequence[Hole], temperature: float) -> Drafting:
    """At a fixed K of DRAFT_TOKENS, within the first line."""
    drafter = FixedDraft(draft, target.runner.vocabulary)
    counters, tokens = Counters(), 0
    for seed, hole in enumerate(found):
        generation = target.generate(target.prompt(hole, temperature, seed), drafter)
        counters.add(generation.counters)
        tokens += len(generation.ids)
    drafted, accepted = counters.drafted.get(NAME, 0), counters.accepted.get(NAME, 0)
    return Drafting(
        acceptance=accepted / max(1, drafted),
        alpha=accepted / max(1, counters.reached.get(NAME, 0)),
        tokens_per_step=tokens / max(1, counters.target_steps),
    )
