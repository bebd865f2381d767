"""copilotd explain: what the model is shown at a place in a file, and why the answer is what it is."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.panel import Panel
from rich.status import Status
from rich.text import Text

from copilotd import wire
from copilotd.completion.explanation import Explanation
from copilotd.config import SessionSettings
from copilotd.daemon.launch import LaunchError, connect
from copilotd.replay.buffer import Buffer
from copilotd.replay.languages import language_id
from copilotd.version import version
from copilotd.wording import plural

HELP = "show the prompt, the reasons and the drafts at FILE:LINE:COLUMN"
MORE = """\
    copilotd explain src/app.py:12:8

It asks your daemon, or starts one, as an editor would whose window has the current folder
open. What it prints holds the file's text: look before you pass it on.
"""


REASONS = {
    "secret": "it holds a secret, or its name says so; `secrets_allowed` in your own settings allows it",
    "off": "your settings turn completion off for this file or its language",
    "away": "the server does not answer; `copilotd status` says which and why",
    "failed": "there is no model to write with; `copilotd status` says why",
    "nothing": "the model wrote nothing here, or only what stands there already",
}
"""by the word that `status` counts"""
HOPELESS = ("away", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place", metavar="FILE:LINE:COLUMN", help="line and column from 1, as editors show them"
    )


def run(args: argparse.Namespace) -> int:
    try:
        file, line, column = _place(args.place)
        text = file.read_bytes().decode()
    except OSError as error:
        print(f"copilotd explain: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except UnicodeDecodeError:
        print(f"copilotd explain: {file} is not UTF-8 text", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"copilotd explain: {error}", file=sys.stderr)
        return 2
    try:
        with Console(stderr=True).status("asking the daemon, or starting it …") as progress:
            answer = asyncio.run(_ask(file, text, Buffer(text).offset((line - 1, column - 1)), progress))
    except LaunchError as error:
        print(f"copilotd explain: {error}", file=sys.stderr)
        return 1
    _show(answer)
    return 1 if answer.reason in HOPELESS else 0


def _place(words: str) -> tuple[Path, int, int]:
    name, *numbers = words.rsplit(":", 2)
    if len(numbers) != 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise ValueError(f"{words!r} is not FILE:LINE:COLUMN, as in src/app.py:12:8")
    return Path(name).resolve(), int(numbers[0]), int(numbers[1])


async def _ask(file: Path, text: str, offset: int, progress: Status) -> wire.Answer:
    here = Path.cwd()
    folder = here if file.is_relative_to(here) else file.parent
    reader, writer = await connect()
    try:
        for message in (
            wire.Hello(version(), "editor", "copilotd explain"),
            wire.Configure(SessionSettings(max_latency_ms=0), (wire.Folder(str(folder)),)),
            wire.Open(file.as_uri(), language_id(file), 1, text),
        ):
            writer.write(wire.frame(message))
        asked = False
        while True:
            said = wire.from_daemon(await wire.read_frame(reader))
            if isinstance(said, wire.State):
                progress.update("loading the models …" if said.state == "loading" else "writing …")
            if isinstance(said, wire.State) and said.state != "loading" and not asked:
                asked = True
                request = wire.Complete(id=1, uri=file.as_uri(), version=1, offset=offset, explain=True)
                writer.write(wire.frame(request))
            elif isinstance(said, wire.Notice | wire.Offer):
                print(said.text, file=sys.stderr)
            elif isinstance(said, wire.Answer):
                return said
    except (EOFError, ConnectionError):
        raise LaunchError("the daemon ended before it answered; `copilotd status` may say why") from None
    finally:
        writer.close()


def _show(answer: wire.Answer) -> None:
    console = Console(highlight=False)
    explanation = (
        msgspec.msgpack.decode(answer.explanation, type=Explanation) if answer.explanation else Explanation()
    )
    for part in explanation.parts:
        title = f"{part.name}: {plural(part.tokens, 'token')}"
        console.print(Panel(Text(part.text), title=title, title_align="left"))
    for reason in explanation.reasons:
        time = f"{reason.ms:8.1f} ms" if reason.ms else " " * 11
        console.print(f"{time}  {reason.stage}: {reason.text}", markup=False)
    for draft in explanation.drafts:
        words = Text(f"{'':11}  {draft.source}: ")
        words.append(repr(draft.accepted)[1:-1] if draft.accepted else "", style="bold green")
        words.append(repr(draft.rejected)[1:-1] if draft.rejected else "", style="dim strike")
        console.print(words)
    counters = explanation.counters
    console.print(
        f"{plural(counters.prefill_tokens, 'token')} prefilled, {counters.reused_tokens} reused, "
        f"{plural(counters.target_steps, 'step')} of the target, "
        f"{plural(counters.generated_tokens, 'token')} written"
    )
    for source, drafted in counters.drafted.items():
        accepted = counters.accepted.get(source, 0)
        console.print(f"{source}: {accepted} of {plural(drafted, 'drafted token')} accepted")
    if not answer.items:
        word = answer.reason or answer.outcome
        why = f" ({REASONS[word]})" if word in REASONS else ""
        console.print(f"no suggestion: {word}{why}", markup=False, soft_wrap=True)
    for item in answer.items:
        console.print(Panel(Text(item.text), title="suggestion", title_align="left"))
