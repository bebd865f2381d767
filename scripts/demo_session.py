"""Types into real files through the real `copilotd --stdio` and prints what an editor would show."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from copilotd.config import SessionSettings
from copilotd.models import starter
from copilotd.replay.editor import Editor, Reply
from copilotd.replay.trace import Edit

SOURCES = Path(__file__).resolve().parent.parent / "tests" / "sources"
LEGEND = (
    "A line per keystroke: how long its ghost text took, what is typed, the cursor [bold red]‸[/], the ghost "
    "text: [italic green]green[/] where the rest of the line is right, so that Tab takes it, "
    "[italic grey50]grey[/] where one types on. The first key at a place waits for the model to read it."
)
MOST_KEYS = 12
"""keystrokes shown of one place; what is then still missing is typed unseen"""


class Place(Struct, frozen=True):
    """Lines first…last (from 1) of a file are deleted and typed again."""

    language: str
    file: str
    first: int
    last: int


PLACES = [
    Place("Python", "ctx.py", 265, 267),
    Place("TypeScript", "ValidationExecutor.ts", 105, 106),
    Place("Java", "JsonArray.java", 95, 97),
    Place("SQL", "get_column_values.sql", 56, 58),
]


class Session(Struct):
    """What one round over all places showed."""

    keys: int = 0
    saved: int = 0
    latencies: list[float] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    seconds: float = 0.0
    status: dict[str, object] = field(default_factory=dict)


def main() -> int:
    console = Console(highlight=False)
    rounds = {}
    for speculation in ("on", "off"):
        with tempfile.TemporaryDirectory(prefix="copilotd-demo-") as home:
            # A fixed budget for cold places: both rounds ask the model the same, however fast it is.
            environment = os.environ | {
                "COPILOTD_HOME": home,
                "COPILOTD_SPECULATION": speculation,
                "COPILOTD_COLD_TOKENS": "4096",
            }
            if starter.present() and "--embedded" not in sys.argv:
                environment["COPILOTD_MODEL"] = str(starter.folder())
            show = console if speculation == "on" else Console(quiet=True)
            try:
                with console.status(f"speculation {speculation}: loading, then typing …"):
                    rounds[speculation] = asyncio.run(play(show, Path(home), environment))
            finally:
                copilotd(environment, "stop")
    compare(console, rounds["on"], rounds["off"])
    return 0 if rounds["on"].texts == rounds["off"].texts else 1


async def play(console: Console, home: Path, environment: dict[str, str]) -> Session:
    session = Session()
    workspace = home / "workspace"
    workspace.mkdir()
    # Without a deadline both rounds write to their end, so that their texts can be compared.
    async with Editor(workspace, SessionSettings(max_latency_ms=0), environment) as editor:
        await asyncio.wait_for(editor.ready.wait(), 300)
        for message in editor.messages:
            console.print(f"[yellow]{message}[/]")
        status = json.loads(copilotd(environment, "status", "--json"))
        console.print(
            f"target [b]{status['target']}[/], draft [b]{status['draft'] or 'none'}[/], "
            f"{status['quantisation']} on {status['device']}\n"
        )
        console.print(f"{LEGEND}\n")
        for place in PLACES:
            await type_again(console, editor, place, session)
    session.status = json.loads(copilotd(environment, "status", "--json"))
    return session


async def type_again(console: Console, editor: Editor, place: Place, session: Session) -> None:
    lines = (SOURCES / place.file).read_text().split("\n")
    missing = "\n".join(lines[place.first - 1 : place.last])
    above, below = "\n".join(lines[: place.first - 1]) + "\n", "\n" + "\n".join(lines[place.last :])
    indent = missing[: len(missing) - len(missing.lstrip())]
    editor.open(place.file, above + indent + below)
    console.rule(
        f"{place.language}: {place.file}, lines {place.first} to {place.last} typed again", align="left"
    )
    for line in lines[max(0, place.first - 4) : place.first - 1]:
        console.print(Text(" " * 11 + line, style="dim"), overflow="crop", no_wrap=True)
    done, keys = len(indent), 0
    while done < len(missing) and keys < MOST_KEYS:
        reply = await ask(editor, place.file, len(above) + done, session)
        ghost = reply.ghost.text if reply.ghost else ""
        rest = missing[done:]
        right = ghost.split("\n")[0] == rest.split("\n")[0] != ""
        line_start = missing.rfind("\n", 0, done) + 1
        print_line(console, reply, missing[line_start:done], ghost, right)
        keys += 1
        taken = len(rest.split("\n")[0]) if right else 1
        if not right and rest[0] == "\n":  # an editor indents the new line by itself
            taken += len(rest[1:]) - len(rest[1:].lstrip(" "))
        session.saved += taken - 1 if right else 0
        insert(editor, place.file, len(above) + done, missing[done : done + taken])
        done += taken
    insert(editor, place.file, len(above) + done, missing[done:])
    session.keys += keys
    editor.close(place.file)
    console.print()


async def ask(editor: Editor, file: str, offset: int, session: Session) -> Reply:
    started = time.perf_counter()
    _, pending = editor.complete(file, editor.buffers[file].position(offset))
    reply = await pending
    session.seconds += time.perf_counter() - started
    session.latencies.append(reply.ms)
    session.texts.append(reply.ghost.text if reply.ghost else None)
    return reply


def insert(editor: Editor, file: str, offset: int, text: str) -> None:
    if text:
        at = editor.buffers[file].position(offset)
        editor.change(file, Edit((at, at), text))


def print_line(console: Console, reply: Reply, typed: str, ghost: str, right: bool) -> None:
    first, *more = ghost.split("\n")
    line = Text(f"{reply.ms:6.0f} ms  ", style="cyan")
    line.append(typed, style="default")
    line.append("‸", style="bold red")
    line.append(first, style="italic green" if right else "italic grey50")
    if more:
        line.append(f"  (+{len(more)} line{'s' * (len(more) > 1)})", style="grey50")
    if right:
        line.append("   ⇥ Tab", style="bold green")
    console.print(line, overflow="crop", no_wrap=True)


def compare(console: Console, on: Session, off: Session) -> None:
    table = Table("", "speculation on", "off", title="The same session twice", title_justify="left")
    steps, steps_off = (int(str(s.status.get("target_steps", 0))) for s in (on, off))
    table.add_row("keystrokes, saved by Tab", *(f"{s.keys}, {s.saved}" for s in (on, off)))
    table.add_row(
        "key to ghost text, median", *(f"{statistics.median(s.latencies):.0f} ms" for s in (on, off))
    )
    table.add_row("waited in all", *(f"{s.seconds:.1f} s" for s in (on, off)))
    table.add_row("steps of the target", str(steps), str(steps_off))
    table.add_row("tokens per step", *(f"{tokens_per_step(s):.2f}" for s in (on, off)))
    for source, drafted in sorted(dict(on.status.get("drafted") or {}).items()):
        accepted = dict(on.status.get("accepted") or {}).get(source, 0)
        table.add_row(f"accepted of drafted by {source}", f"{accepted} of {drafted}", "–")
    console.print(table)
    same = sum(a == b for a, b in zip(on.texts, off.texts, strict=True))
    console.print(
        f"{same} of {len(on.texts)} suggestions are the same letter for letter; "
        f"waiting time with speculation: {on.seconds / off.seconds:.2f} of that without."
    )
    console.print("Next: `.venv/bin/copilotd doctor`, and your editor: README.md, Neovim and VS Code.")


def tokens_per_step(session: Session) -> float:
    steps = int(str(session.status.get("target_steps", 0)))
    return int(str(session.status.get("generated_tokens", 0))) / steps if steps else 0.0


def copilotd(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "copilotd", *arguments]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
