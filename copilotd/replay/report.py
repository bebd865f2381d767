"""The replay report: what observations say, in the format of `copilotd replay --json`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from rich.table import Table

from copilotd.replay.player import Keystroke, Observations, Request


class Quantiles(Struct, frozen=True):
    """Milliseconds or counts; None where nothing was observed."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class TypedThrough(Struct, frozen=True):
    count: int


class Report(Struct, frozen=True, kw_only=True):
    """Figures of one trace, or of all; names as in the format's description."""

    name: str
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
    drafted, accepted = _gain(observed, "drafted"), _gain(observed, "accepted")
    generated = _total(observed, "generated_tokens")
    steps = _total(observed, "target_steps")
    return Report(
        name=name,
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
        typed_through=TypedThrough(_total(observed, "requests", "typed_through")),
        joined=_total(observed, "requests", "joined"),
        prefill_tokens=_prefill(observed),
        target_steps=steps,
        drafted=drafted,
        accepted=accepted,
        acceptance={source: round(accepted.get(source, 0) / n, 4) for source, n in drafted.items() if n},
        tokens_per_step=round(generated / steps, 3) if steps else None,
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


def _number_at(status: dict[str, object], *keys: str) -> int:
    found: object = status
    for key in keys:
        found = found.get(key, 0) if isinstance(found, dict) else 0
    return found if isinstance(found, int) else 0


def _total(observed: Sequence[Observations], *keys: str) -> int:
    """How much a counter of the daemon's status grew over the traces."""
    return sum(_number_at(o.status_after, *keys) - _number_at(o.status_before, *keys) for o in observed)


def _gain(observed: Sequence[Observations], key: str) -> dict[str, int]:
    sources = {s for o in observed for s in _dict(o.status_after.get(key))}
    return {source: _total(observed, key, source) for source in sorted(sources)}


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _prefill(observed: Sequence[Observations]) -> Quantiles:
    """From the histogram {tokens: requests} that the daemon's status counts."""
    counts: Counter[int] = Counter()
    for o in observed:
        for tokens in _dict(o.status_after.get("prefill")):
            counts[int(tokens)] += _number_at(o.status_after, "prefill", tokens) - _number_at(
                o.status_before, "prefill", tokens
            )
    return quantiles(counts.elements())
