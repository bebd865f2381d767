"""copilotd replay: play recorded editing sessions against the real program."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from copilotd.replay.player import Observations, Player
from copilotd.replay.report import report, table
from copilotd.replay.trace import TraceError, load

HELP = "play recorded editing sessions and report latency and acceptance"
MORE = """\
A trace is a file of JSON Lines: first the workspace, then what was typed, and when.

    {"format":"copilotd-trace/1","name":"a","files":{"a.py":"def f(x):\\n    "},"settings":{}}
    {"t":0,"open":"a.py"}
    {"t":100,"change":"a.py","edits":[{"range":[[1,4],[1,4]],"text":"r"}]}
    {"t":105,"complete":"a.py","at":[1,5],"trigger":"automatic","truth":"eturn x"}
    {"t":900,"close":"a.py"}
"""


class ReplayFile(msgspec.Struct, frozen=True):
    """What --json writes."""

    traces: list[object]
    all: object


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="copilotd-trace/1 files (JSON Lines)"
    )
    parser.add_argument(
        "--speed",
        choices=["recorded", "max"],
        default="recorded",
        help="recorded: at the pace of the trace; max: the next event as soon as an answer is there",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")


def run(args: argparse.Namespace) -> int:
    console = Console(stderr=True)
    if args.json and not args.json.parent.is_dir():
        console.print(f"copilotd replay: no such folder: {args.json.parent}", markup=False)
        return 2
    try:
        traces = [load(file) for file in args.traces]
    except TraceError as error:
        console.print(f"copilotd replay: {error}", markup=False)
        return 2
    seen: list[Observations] = []
    with Progress(console=console) as progress:
        for trace in traces:
            bar = progress.add_task(trace.name, total=len(trace.events))
            with tempfile.TemporaryDirectory(prefix="copilotd-replay-") as folder:
                player = Player(trace, Path(folder) / "workspace", args.speed, partial(progress.advance, bar))
                seen.append(asyncio.run(player.play()))
    reports = [report(o.name, [o]) for o in seen]
    overall = report("all", seen)
    Console().print(table([*reports, overall]))
    if args.json:
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(ReplayFile([*reports], overall))))
    return 0
