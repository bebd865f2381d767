"""The replay report: what observations say, in the format of `copilotd replay --json`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from rich.table import Table

from copilotd.replay.counts import Counts, Stage
from copilotd.replay.player import Keystroke, Observations, Request

STAGES = ("waiting", "prompt", "prefill", "decode", "text", "memory")


class Quantiles(Struct, frozen=True):
    """Milliseconds or counts; None where nothing was observed."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class TypedThrough(Struct, frozen=True):
    count: int
    """requests that the daemon answered from memory with what was left of a suggestion"""
    answer_ms: Quantiles = Quantiles()
    """of the answers that went on with the ghost shown before"""


class Report(Struct, frozen=True, kw_only=True):
    """Figures of one trace, or of all; names as in the format's description."""

    name: str
    model: str
    requests: int
    answered: int
    empty: int
    cancelled: int
    stale: int
    errors: int
    ghost_ms: Quantiles
    visible_share: dict[str, float]
    answer_ms: Quantiles
    cold_ms: Quantiles
    typed_through: TypedThrough
    joined: int
    prefill_tokens: Quantiles
    """per request that the model worked for"""
    stage_ms: dict[str, float]
    """mean milliseconds of an answer by the model: waiting, prompt, prefill, decode, text; of one from
    `memory`; and, for both, `way`: what front, socket and editor took beside"""
    target_steps: int
    drafted: dict[str, int]
    accepted: dict[str, int]
    acceptance: dict[str, float]
    tokens_per_step: float | None
    exact_chars_share: float | None
    exact_line_share: float | None
    ghost_in_time_share: float | None
    right_in_time_share: float | None
    daemon_rss_mb: float
    front_pss_mb: float


def quantiles(values: Iterable[float]) -> Quantiles:
    """Inclusive quantiles, as a person reads them: the value that so many per cent do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return Quantiles()

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return Quantiles(at(0.50), at(0.95), at(0.99), round(ordered[-1], 2))


def report(name: str, observed: Sequence[Observations]) -> Report:
    requests = [request for trace in observed for request in trace.requests]
    keystrokes = [keystroke for trace in observed for keystroke in trace.keystrokes]
    judged = [keystroke for keystroke in keystrokes if keystroke.truth is not None]
    outcomes = Counter(request.outcome for request in requests)
    counts = Counts()
    for trace in observed:
        counts = counts.plus(trace.counts)
    steps = counts.target_steps
    return Report(
        name=name,
        model=", ".join(dict.fromkeys(trace.model for trace in observed if trace.model)),
        requests=len(requests),
        answered=outcomes["answered"],
        empty=outcomes["empty"],
        cancelled=outcomes["cancelled"],
        stale=sum(request.stale for request in requests),
        errors=outcomes["error"],
        ghost_ms=quantiles(k.ghost_ms for k in keystrokes if k.ghost_ms is not None),
        visible_share={
            str(limit): _share([k.ghost_ms is not None and k.ghost_ms <= limit for k in judged]) or 0.0
            for limit in (100, 300)
        },
        answer_ms=quantiles(request.ms for request in requests if request.outcome == "answered"),
        cold_ms=quantiles(k.ghost_ms for k in keystrokes if k.cold and k.ghost_ms is not None),
        typed_through=TypedThrough(
            counts.typed_through, quantiles(request.ms for request in requests if request.along)
        ),
        joined=counts.joined,
        prefill_tokens=quantiles(Counter(counts.prefill).elements()),
        stage_ms=_stage_ms(requests, counts.stages),
        target_steps=steps,
        drafted=dict(sorted(counts.drafted.items())),
        accepted=dict(sorted(counts.accepted.items())),
        acceptance={
            source: round(counts.accepted.get(source, 0) / n, 4)
            for source, n in sorted(counts.drafted.items())
        },
        tokens_per_step=round(counts.generated_tokens / steps, 3) if steps else None,
        exact_chars_share=_exact_chars(requests),
        exact_line_share=_share([_right(r) for r in requests if _first_line(r.truth)]),
        ghost_in_time_share=_share([_in_time(k) for k in judged]),
        right_in_time_share=_right_in_time(observed),
        daemon_rss_mb=round(max((o.daemon_rss_mb for o in observed), default=0.0), 1),
        front_pss_mb=round(max((o.front_pss_mb for o in observed), default=0.0), 1),
    )


def table(reports: Sequence[Report]) -> Table:
    """A row a trace, the figures a person compares; acceptance by source below."""
    overall = reports[-1]
    acceptance = ", ".join(f"{source} {share:.0%}" for source, share in overall.acceptance.items())
    shown = Table(title="copilotd replay", caption=f"accepted of drafted: {acceptance or 'nothing drafted'}")
    shown.add_column("trace", overflow="ellipsis", no_wrap=True, max_width=20)
    for column in ("answered", "stale\nerrors", "ghost ms\np50 p95", "≤ 100\nms", "right", "tokens\n/step"):
        shown.add_column(column, justify="right", no_wrap=True)
    for one in reports:
        shown.add_row(
            one.name,
            f"{one.answered}/{one.requests}",
            f"{one.stale} {one.errors}",
            f"{_number(one.ghost_ms.p50)} {_number(one.ghost_ms.p95)}",
            f"{one.visible_share['100']:.0%}",
            "–" if one.exact_chars_share is None else f"{one.exact_chars_share:.0%}",
            "–" if one.tokens_per_step is None else f"{one.tokens_per_step:.2f}",
        )
    return shown


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _share(truths: Sequence[bool]) -> float | None:
    return round(statistics.fmean(truths), 4) if truths else None


def _first_line(text: str | None) -> str:
    return "" if text is None else text.split("\n", 1)[0]


def _common(one: str, other: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _exact_chars(requests: Sequence[Request]) -> float | None:
    truths = [
        (_first_line(request.truth), _first_line(request.text)) for request in requests if request.truth
    ]
    total = sum(len(truth) for truth, _ in truths)
    return round(sum(_common(truth, text) for truth, text in truths) / total, 4) if total else None


def _right(request: Request) -> bool:
    return request.text is not None and _first_line(request.text) == _first_line(request.truth)


def _in_time(keystroke: Keystroke) -> bool:
    if keystroke.ghost_ms is None:
        return False
    return keystroke.next_ms is None or keystroke.at_ms + keystroke.ghost_ms <= keystroke.next_ms


def _right_in_time(observed: Sequence[Observations]) -> float | None:
    right = [_in_time(k) and k.right for trace in observed for k in trace.keystrokes if k.truth is not None]
    return _share(right)


def _stage_ms(requests: Sequence[Request], stages: Mapping[str, Stage]) -> dict[str, float]:
    means = {
        name: round(stage.ms / stage.count, 3)
        for name in STAGES
        if (stage := stages.get(name)) is not None and stage.count
    }
    finished = [request.ms for request in requests if request.outcome in ("answered", "empty")]
    within = [stages[name] for name in ("answer", "memory") if name in stages]
    served = sum(stage.count for stage in within)
    if finished and served:
        way = statistics.fmean(finished) - sum(stage.ms for stage in within) / served
        means["way"] = round(max(0.0, way), 3)
    return means
