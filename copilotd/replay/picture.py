"""The replay report as a page with plots."""

from __future__ import annotations

from collections.abc import Sequence

from copilotd.replay.page import Bars, Cell, Part, Plot, Section, Series, Table, distribution, page
from copilotd.replay.player import Observations
from copilotd.replay.report import Quantiles, Report

WINDOWS = 24
"""points of a plot over time, at most"""


def picture(observed: Sequence[Observations], reports: Sequence[Report], how: str) -> str:
    """The page; `reports` has one for each observation and the last one for all. Raises PageError."""
    overall = reports[-1]
    return page(
        "copilotd replay",
        [
            Section("How soon", _latency(observed, reports), _NOTE),
            Section("Where the milliseconds go", _stages(reports)),
            Section("Drafts", _drafts(observed, reports)),
            Section("How right", [_right(reports)]),
        ],
        f"{overall.model}; {len(observed)} traces, {overall.requests} requests; {how}.",
    )


_NOTE = (
    "ghost: from a keystroke until a suggestion valid for the text then on screen is there; cancelled and empty "
    "requests leave the clock running. answer: from a request to its answer."
)


def _latency(observed: Sequence[Observations], reports: Sequence[Report]) -> list[Part]:
    ghost = [k.ghost_ms for o in observed for k in o.keystrokes if k.ghost_ms is not None]
    answer = [r.ms for o in observed for r in o.requests if r.outcome == "answered"]
    along = [r.ms for o in observed for r in o.requests if r.along]
    lines = [
        Series(name, *distribution([max(value, 0.1) for value in values]))
        for name, values in (("ghost", ghost), ("answer", answer), ("answer, typed as suggested", along))
        if values
    ]
    rows = [
        [r.name, *_times(r.ghost_ms), *_times(r.answer_ms), r.cold_ms.p50, *r.visible_share.values()]
        for r in reports
    ]
    columns = [
        "trace",
        *(f"{what} {at}" for what in ("ghost ms", "answer ms") for at in ("p50", "p95", "max")),
    ]
    shares = [f"within {limit} ms" for limit in reports[-1].visible_share]
    parts: list[Part] = [
        Table("Milliseconds, and shares of keystrokes", [*columns, "cold p50", *shares], rows)
    ]
    if lines:
        parts.insert(
            0, Plot("Share that is there by then", "ms", "share", lines, log_x=True, steps=True, y_max=1.0)
        )
    return parts


def _times(quantiles: Quantiles) -> list[Cell]:
    return [quantiles.p50, quantiles.p95, quantiles.max]


def _stages(reports: Sequence[Report]) -> list[Part]:
    stages = list(dict.fromkeys(stage for report in reports for stage in report.stage_ms))
    if not stages:
        return []
    bars = Bars(
        "An answer's mean milliseconds; one from memory is whole, the way is every answer's",
        "ms",
        [report.name for report in reports],
        {
            stage: [report.stage_ms.get(stage, 0.0) for report in reports]
            for stage in stages
            if stage != "memory"
        },
        stacked=True,
    )
    columns = ["trace", *stages, "prefilled tokens p50", "p95", "target steps", "tokens per step"]
    rows: list[list[Cell]] = [
        [
            r.name,
            *(r.stage_ms.get(stage) for stage in stages),
            r.prefill_tokens.p50,
            r.prefill_tokens.p95,
            r.target_steps,
            r.tokens_per_step,
        ]
        for r in reports
    ]
    return [bars, Table("Mean milliseconds by stage, and the work behind them", columns, rows)]


def _drafts(observed: Sequence[Observations], reports: Sequence[Report]) -> list[Part]:
    overall = reports[-1]
    sources = list(overall.drafted)
    if not sources:
        return [Table("Nothing was drafted", [], [])]
    parts: list[Part] = [
        Bars(
            "Tokens by source",
            "tokens",
            sources,
            {
                "drafted": [overall.drafted[source] for source in sources],
                "accepted": [overall.accepted.get(source, 0) for source in sources],
            },
        )
    ]
    if lines := [line for source in sources if (line := _over_time(observed, source)).x]:
        parts.append(Plot("Acceptance over time", "seconds", "accepted of drafted", lines, y_max=1.0))
    rows: list[list[Cell]] = [
        [r.name, source, r.drafted[source], r.accepted.get(source, 0), r.acceptance[source]]
        for r in reports
        for source in r.drafted
    ]
    return [*parts, Table("By trace and source", ["trace", "source", "drafted", "accepted", "share"], rows)]


def _over_time(observed: Sequence[Observations], source: str) -> Series:
    """Acceptance in windows of the traces played one after the other; windows without a draft have no point."""
    readings: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for one in observed:
        at, drafted, accepted = readings[-1]
        readings += [
            (
                at + sample.at_ms / 1000,
                drafted + sample.counts.drafted.get(source, 0),
                accepted + sample.counts.accepted.get(source, 0),
            )
            for sample in one.samples
        ]
    width = readings[-1][0] / WINDOWS
    x: list[float] = []
    y: list[float] = []
    last = readings[0]
    for reading in readings[1:]:
        if reading[0] - last[0] >= width or reading is readings[-1]:
            if drafted := reading[1] - last[1]:
                x.append(round(reading[0], 2))
                y.append(round((reading[2] - last[2]) / drafted, 4))
            last = reading
    return Series(source, x, y)


def _right(reports: Sequence[Report]) -> Table:
    return Table(
        "Against what the author wrote next, and whether it came before the next key",
        [
            "trace",
            "characters right",
            "lines right",
            "ghost in time",
            "right in time",
            "typed through",
            "stale",
            "errors",
        ],
        [
            [
                r.name,
                r.exact_chars_share,
                r.exact_line_share,
                r.ghost_in_time_share,
                r.right_in_time_share,
                r.typed_through.count,
                r.stale,
                r.errors,
            ]
            for r in reports
        ],
    )
