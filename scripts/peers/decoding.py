"""Decoding speed of every contender, on the same weights, prompts and threads, prompt by prompt in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

from msgspec import Struct, field

from copilotd.models.tokenizer import TokenizerVocabulary
from peers.llama import MissingPeer, Server, binary
from peers.prompts import cut
from peers.weights import Weights
from peers.worker import Asked, Job, Run, Worker

NGRAMS = {
    "ngram-simple": ("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "10"),
    "ngram-map-k": ("--spec-ngram-map-k-size-n", "3", "--spec-ngram-map-k-size-m", "10"),
    "ngram-mod": (
        "--spec-ngram-mod-n-match", "8", "--spec-ngram-mod-n-min", "4", "--spec-ngram-mod-n-max", "16",
    ),
}  # fmt: skip
"""llama.cpp's own speculation with the sizes that did best on code here"""


class Row(Struct):
    """What one contender did on one kind of prompt."""

    contender: str
    kind: str
    runs: list[Run] = field(default_factory=list)
    rss_mb: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        ms = sum(run.decode_ms for run in self.runs)
        return sum(run.timed for run in self.runs) / ms * 1e3 if ms else 0.0

    @property
    def prefill_per_s(self) -> float:
        rates = [run.prompt_tokens / run.prompt_ms * 1e3 for run in self.runs if run.prompt_tokens > 100]
        return median(rates) if rates else 0.0

    @property
    def tokens_per_step(self) -> float | None:
        steps = sum(run.steps for run in self.runs)
        return sum(len(run.ids) for run in self.runs) / steps if steps else None


class Found(Struct):
    rows: list[Row]
    about: dict[str, Any]
    """copilotd's own figures: bytes per token, bandwidth, ceiling"""
    missing: list[str]
    """peers that could not take part, and why"""

    def row(self, contender: str, kind: str) -> Row | None:
        return next((r for r in self.rows if r.contender == contender and r.kind == kind), None)


class LlamaContender:
    def __init__(self, server: Server) -> None:
        self._server = server

    def run(self, asked: Asked) -> Run:
        said = self._server.complete(asked.prompt.ids, asked.tokens)
        return Run(
            ids=said.ids,
            timed=max(0, said.tokens - 1),
            decode_ms=said.decode_ms,
            prompt_tokens=said.prompt_tokens,
            prompt_ms=said.prompt_ms,
            steps=said.tokens - said.accepted,
            drafted=said.drafted,
            accepted=said.accepted,
        )

    @property
    def rss_mb(self) -> float:
        return self._server.rss_mb


class Plan(Struct, frozen=True, kw_only=True):
    """What to measure."""

    weights: Weights
    peers: tuple[str, ...]
    """copilotd, transformers, llama"""
    kinds: tuple[str, ...]
    prompts: int
    context: int
    tokens: int
    threads: int
    quantisation: str = "auto"
    llama_kinds: tuple[str, ...] = ("Q4_0", "Q8_0", "BF16")


Modes = list[tuple[str, str, Any]]
"""(contender, mode, who runs it)"""


def decode(plan: Plan, say: Callable[[str], None]) -> Found:
    """Every contender is loaded once; then prompt by prompt each has its turn, in changing order."""
    found = Found([], {}, [])
    with ExitStack() as stack:
        modes: Modes = []
        for peer in plan.peers:
            try:
                say(f"loading {peer}")
                modes += list(_CONTENDERS[peer](plan, stack, found))
            except (MissingPeer, OSError) as error:
                found.missing.append(f"{peer}: {error}")
        rows = {(name, kind): Row(name, kind) for kind in plan.kinds for name, _, _ in modes}
        vocabulary = TokenizerVocabulary.from_folder(plan.weights.target)
        for kind in plan.kinds:
            for at, prompt in enumerate(cut(vocabulary, kind, plan.prompts, plan.context)):
                say(f"{kind} prompt {at + 1} of {plan.prompts}")
                shift = at % len(modes) if modes else 0
                for name, mode, contender in modes[shift:] + modes[:shift]:
                    rows[name, kind].runs.append(contender.run(Asked(prompt, plan.tokens, mode)))
        for (name, _), row in rows.items():
            row.rss_mb = next(contender.rss_mb for n, _, contender in modes if n == name)
        found.rows = list(rows.values())
    return found


def _copilotd(plan: Plan, stack: ExitStack, found: Found) -> Iterator[tuple[str, str, Any]]:
    weights = plan.weights
    worker = stack.enter_context(
        Worker(
            Job(
                kind="copilotd",
                target=str(weights.target),
                draft=str(weights.draft or ""),
                quantisation=plan.quantisation,
                threads=plan.threads,
                context=plan.context + plan.tokens + 16,
            )
        )
    )
    found.about = worker.about
    yield f"{worker.about['name']}, plain", "plain", worker
    yield f"{worker.about['name']}, speculating", "auto", worker
    yield f"{worker.about['name']}, with an earlier answer", "echo", worker


def _transformers(plan: Plan, stack: ExitStack, found: Found) -> Iterator[tuple[str, str, Any]]:
    worker = stack.enter_context(transformers(plan.weights, plan.threads, plan.context))
    yield "transformers bf16, plain", "plain", worker
    for mode, name in assisted(plan.weights).items():
        yield name, mode, worker


def transformers(weights: Weights, threads: int, context: int) -> Worker:
    return Worker(
        Job(
            kind="transformers",
            target=str(weights.floating("target")),
            draft=str(weights.floating("draft")) if weights.draft else "",
            quantisation="bf16",
            threads=threads,
            context=context,
        )
    )


def assisted(weights: Weights) -> dict[str, str]:
    """The names of transformers' ways to speculate with such weights."""
    names = {"lookup": "transformers bf16, prompt lookup"}
    return names | ({"draft": "transformers bf16, draft model"} if weights.draft else {})


def _llama(plan: Plan, stack: ExitStack, found: Found) -> Iterator[tuple[str, str, Any]]:
    binary("llama-server")
    weights = plan.weights
    context = plan.context + plan.tokens + 64

    wanted: list[tuple[str, str, tuple[str, ...]]] = [
        (f"{kind}, plain", kind, ()) for kind in plan.llama_kinds
    ]
    fastest = plan.llama_kinds[0]
    for mode, sizes in NGRAMS.items():
        wanted.append((f"{fastest}, {mode}", fastest, ("--spec-type", mode, *sizes)))
    if weights.draft:
        draft = str(weights.gguf("draft", fastest))
        more = ("-md", draft, "-td", str(plan.threads), "--spec-draft-n-max", "4")
        wanted.append((f"{fastest}, draft model", fastest, ("--spec-type", "draft-simple", *more)))
    for name, kind, more in wanted:
        try:
            server = Server(weights.gguf("target", kind), plan.threads, context, 2048, *more)
            yield f"llama.cpp {name}", "plain", LlamaContender(stack.enter_context(server))
        except MissingPeer as error:
            found.missing.append(f"llama.cpp {name}: {error}")


_CONTENDERS = {"copilotd": _copilotd, "transformers": _transformers, "llama": _llama}
