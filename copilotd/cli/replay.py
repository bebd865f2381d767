"""copilotd replay: play recorded editing sessions against the real program."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from rich.console import Console
from rich.progress import Progress

from copilotd import wire
from copilotd.config import DaemonSettings
from copilotd.daemon import metrics
from copilotd.daemon.commands import tell
from copilotd.daemon.launch import LaunchError, connect, find
from copilotd.replay.counts import Counts, Read, Reading, Stage
from copilotd.replay.page import PageError, available
from copilotd.replay.picture import picture
from copilotd.replay.player import Observations, Player
from copilotd.replay.report import Report, report, table
from copilotd.replay.rules import EDITORS
from copilotd.replay.trace import Trace, TraceError, load
from copilotd.version import version

HELP = "play recorded editing sessions and report latency and acceptance"
MORE = """\
    copilotd replay TRACE… --json report.json --html report.html
    copilotd replay TRACE… --editor vscode       asks when VS Code would, not where the trace asks

A trace is a file of JSON Lines: first the workspace, then what was typed, and when. `copilotd record`
writes one from a session of your own.

    {"format":"copilotd-trace/1","name":"a","files":{"a.py":"def f(x):\\n    "},"settings":{}}
    {"t":0,"open":"a.py"}
    {"t":100,"change":"a.py","edits":[{"range":[[1,4],[1,4]],"text":"r"}]}
    {"t":105,"complete":"a.py","at":[1,5],"trigger":"automatic","truth":"eturn x"}
    {"t":900,"close":"a.py"}
"""


VARIABLES = [f"COPILOTD_{name.upper()}" for name in DaemonSettings.__struct_fields__]
"""that change how a daemon starts"""


class ReplayFile(msgspec.Struct, frozen=True):
    """What --json writes."""

    speed: str
    editor: str | None
    """whose rules decided when to ask; null: the trace's own requests"""
    traces: list[Report]
    all: Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="copilotd-trace/1 files (JSON Lines)"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--speed",
        choices=["recorded", "max"],
        default="recorded",
        help="recorded: at the pace of the trace; max: the next event as soon as an answer is there",
    )
    way.add_argument(
        "--editor",
        choices=list(EDITORS),
        help="ask and cancel as that editor does, at the pace of the trace, instead of the trace's own requests",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report here as one page with plots"
    )


def run(args: argparse.Namespace) -> int:
    console = Console(stderr=True)
    try:
        traces = [load(file) for file in args.traces]
        for file in filter(None, (args.json, args.html)):
            if not file.parent.is_dir():
                raise ValueError(f"no such folder: {file.parent}")
        if args.html:
            available()
    except (TraceError, PageError, ValueError) as error:
        console.print(f"copilotd replay: {error}", markup=False, soft_wrap=True)
        return 2
    variables = [name for name in VARIABLES if name in os.environ]
    ran = "COPILOTD_SOCKET" in os.environ or asyncio.run(find()) is not None
    if ran and variables:
        console.print(
            f"copilotd replay: a daemon runs already and is used as it is; {', '.join(variables)} "
            "counts for one that starts (`copilotd stop` first)",
            markup=False,
            soft_wrap=True,
        )
    seen: list[Observations] = []
    try:
        with Progress(console=console) as progress:
            for trace in traces:
                bar = progress.add_task(trace.name, total=len(trace.events))
                seen.append(
                    asyncio.run(_play(trace, args.speed, args.editor, partial(progress.advance, bar)))
                )
    except LaunchError as error:
        console.print(f"copilotd replay: {error}", markup=False, soft_wrap=True)
        return 1
    except OSError as error:  # a trace's files that cannot all be: one is the folder of another
        console.print(f"copilotd replay: {error.filename or trace.name}: {error.strerror}", markup=False)
        return 1
    finally:
        if variables and not ran:  # nor may an editor meet a daemon with settings of this terminal alone
            with suppress(LaunchError):
                asyncio.run(tell("stop"))
    console.print("; ".join(dict.fromkeys(one.model for one in seen)), markup=False)
    for message in dict.fromkeys(message for one in seen for message in one.messages):
        console.print(message, markup=False)
    reports = [report(o.name, [o]) for o in seen]
    overall = report("all", seen)
    Console().print(table([*reports, overall]))
    try:
        if args.json:
            whole = ReplayFile(args.speed, args.editor, reports, overall)
            args.json.write_bytes(msgspec.json.format(msgspec.json.encode(whole)))
        if args.html:
            how = f"as {args.editor} asks" if args.editor else f"speed: {args.speed}"
            args.html.write_text(picture(seen, [*reports, overall], how), encoding="utf-8")
    except OSError as error:
        console.print(f"copilotd replay: {error.filename}: {error.strerror}", markup=False)
        return 1
    return 0


async def _play(trace: Trace, speed: str, editor: str | None, tick: partial[None]) -> Observations:
    pace: Literal["recorded", "max"] = "max" if speed == "max" else "recorded"
    with tempfile.TemporaryDirectory(prefix="copilotd-replay-") as folder:
        async with counting() as read:
            rules = EDITORS[editor] if editor else None
            player = Player(trace, Path(folder) / "workspace", pace, read, rules=rules, tick=tick)
            return await player.play()


@asynccontextmanager
async def counting() -> AsyncIterator[Read]:
    """Asks the daemon for its counts, over one connection. It starts the daemon, if none runs."""
    reader, writer = await connect()
    writer.write(wire.frame(wire.Hello(version(), "control")))

    async def read() -> Reading:
        writer.write(wire.frame(wire.Control("metrics")))
        while True:
            try:
                said = wire.from_daemon(await wire.read_frame(reader))
            except (EOFError, ConnectionError):
                raise LaunchError(
                    "the daemon ended during the replay; `copilotd status` may say why"
                ) from None
            if isinstance(said, wire.Report):
                return _reading(msgspec.msgpack.decode(said.body, type=metrics.Report))

    try:
        yield read
    finally:
        writer.close()


def _reading(said: metrics.Report) -> Reading:
    status = said.status
    if status.state == "failed":
        raise LaunchError(status.message)
    words = (status.target, f"draft {status.draft or 'none'}", status.quantisation, status.device)
    counts = Counts(
        typed_through=status.requests.typed_through,
        joined=status.requests.joined,
        target_steps=status.target_steps,
        generated_tokens=status.generated_tokens,
        prefill_tokens=status.prefill_tokens,
        drafted=status.drafted,
        accepted=status.accepted,
        prefill=status.prefill,
        stages={name: Stage(sum(found.counts), found.sum_ms) for name, found in said.metrics.stages},
    )
    return Reading(status.pid, ", ".join(filter(None, words)), counts)
