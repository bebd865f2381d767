"""copilotd metrics: the daemon's numbers for Prometheus, once, on a port of this machine, or as a page."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from pathlib import Path

from copilotd.daemon.commands import ask_metrics
from copilotd.daemon.launch import LaunchError
from copilotd.daemon.metrics import BOUNDS_MS, Drafted, Metrics, Report
from copilotd.replay.page import Bars, Cell, PageError, Part, Plot, Section, Series, Table, page

HELP = "print the daemon's numbers for Prometheus, or serve them on 127.0.0.1"
PORT = 9464
MORE = f"""\
    copilotd metrics                    the numbers, once
    copilotd metrics --serve            http://127.0.0.1:{PORT}/metrics until Ctrl-C, and for this machine only
    copilotd metrics --html page.html   the same as a page with plots

Numbers only: no text, no file's name, no path. They are counted by your daemon and asked for
by this command's own process; nothing listens, and nothing is sent, unless you run it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--serve",
        type=_port,
        nargs="?",
        const=PORT,
        metavar="PORT",
        help=f"answer Prometheus on 127.0.0.1 (default port {PORT}; 0 takes a free one)",
    )
    way.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots")


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > 65535:
        raise argparse.ArgumentTypeError(f"{word!r} is no port from 0 to 65535")
    return int(word)


def run(args: argparse.Namespace) -> int:
    try:
        if args.serve is not None:
            return _serve(args.serve)
        report = asyncio.run(ask_metrics())
        if args.html is not None:
            args.html.write_text(as_page(report), encoding="utf-8")
        else:
            _print(report)
    except OSError as error:
        place = error.filename or f"port {args.serve}"
        print(f"copilotd metrics: {place}: {error.strerror}", file=sys.stderr)
        return 1
    except (LaunchError, PageError) as error:
        print(f"copilotd metrics: {error}", file=sys.stderr)
        return 1
    return 0


def _print(report: Report) -> None:
    from prometheus_client import generate_latest

    from copilotd.daemon.exposition import registry

    sys.stdout.write(generate_latest(registry(lambda: report)).decode())


def _serve(port: int) -> int:
    from prometheus_client import start_http_server

    from copilotd.daemon.exposition import registry

    server, _ = start_http_server(
        port, addr="127.0.0.1", registry=registry(lambda: asyncio.run(ask_metrics()))
    )
    print(f"http://127.0.0.1:{server.server_port}/metrics (Ctrl-C ends it)", flush=True)
    try:
        threading.Event().wait()
    finally:
        server.shutdown()
        server.server_close()
    return 0


# ---- for a person ------------------------------------------------------------------------------------------


def as_page(report: Report) -> str:
    """The page of `--html`. Raises PageError."""
    status = report.status
    about = (
        f"copilotd {status.version}, up {status.uptime_s / 3600:.1f} h: {status.target or 'no model'}, draft "
        f"{status.draft or 'none'}, {status.quantisation or '-'} on {status.device or '-'}"
    )
    metrics = report.metrics
    return page(
        "What copilotd did",
        [
            Section("How soon", _latency(metrics), "Without the model: from memory, typed as suggested."),
            Section("What became of the suggestions", _outcomes(metrics)),
            Section("Drafts", _drafts(metrics)),
        ],
        about,
    )


def _latency(metrics: Metrics) -> list[Part]:
    stages = dict(metrics.stages)
    whole = [
        Series(name, BOUNDS_MS, [sum(found.counts[: at + 1]) / total for at in range(len(BOUNDS_MS))])
        for name, stage in (("with the model", "answer"), ("from memory", "memory"))
        if (found := stages.get(stage)) and (total := sum(found.counts))
    ]
    rows: list[list[Cell]] = [
        [stage, number, found.sum_ms / number]
        for stage, found in metrics.stages
        if (number := sum(found.counts))
    ]
    plots: list[Part] = []
    if whole:
        plots.append(
            Plot("Answers by their time", "ms", "share within", whole, log_x=True, steps=True, y_max=1.0)
        )
    return [*plots, Table("By stage", ["stage", "requests", "mean ms"], rows)]


def _outcomes(metrics: Metrics) -> list[Part]:
    columns = (
        "answered",
        "cancelled",
        "typed_through",
        "joined",
        "shown",
        "accepted",
        "accepted_in_part",
        "kept",
    )
    requests = [
        [language, *(getattr(found, name) for name in columns)]
        for language, found in sorted(metrics.requests, key=lambda pair: -pair[1].answered)
    ]
    reasons: dict[str, int] = {}
    for key, number in metrics.empty:
        reasons[key.reason] = reasons.get(key.reason, 0) + number
    empty = sorted(reasons.items(), key=lambda pair: -pair[1])
    parts: list[Part] = [
        Table("Requests by language", ["language", *(name.replace("_", " ") for name in columns)], requests)
    ]
    if empty:
        parts.append(
            Bars(
                "Requests without a suggestion, by reason",
                "requests",
                [reason for reason, _ in empty],
                {"requests": [number for _, number in empty]},
            )
        )
    return parts


def _drafts(metrics: Metrics) -> list[Part]:
    sources: dict[str, Drafted] = {}
    for key, drafted in metrics.drafts:
        total = sources.setdefault(key.source, Drafted())
        total.proposed += drafted.proposed
        total.reached += drafted.reached
        total.accepted += drafted.accepted
    rows: list[list[Cell]] = [
        [key.source, key.language, key.model, found.proposed, found.accepted, found.accepted / found.proposed]
        for key, found in metrics.drafts
        if found.proposed
    ]
    table = Table(
        "By source, language and model", ["source", "language", "model", "drafted", "accepted", "share"], rows
    )
    if not sources:
        return [table]
    bars = Bars(
        "Drafted tokens",
        "tokens",
        list(sources),
        {
            "drafted": [found.proposed for found in sources.values()],
            "accepted": [found.accepted for found in sources.values()],
        },
    )
    return [bars, table]
