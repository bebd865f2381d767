"""copilotd config: every setting, what it means, its value, and where that comes from."""

from __future__ import annotations

import argparse
import sys

import msgspec
from msgspec import Struct

from copilotd.config import (
    DaemonSettings,
    Loaded,
    SessionSettings,
    SettingsError,
    load,
    meanings,
    system_file,
    user_file,
)

HELP = "show every setting, its value and its source"
MORE = """\
Settings are read from the system's file, then from yours; the first lines of the output
name both. An example:

    [daemon]
    model = "/models/Qwen2.5-Coder-1.5B"
    [session]
    languages_off = ["markdown"]

A variable COPILOTD_MODEL, COPILOTD_DRAFT, … lies over a daemon key; an editor's own settings
lie over session keys. After a change of daemon keys: `copilotd reload`.
"""


class Line(Struct, frozen=True):
    key: str
    value: object
    meaning: str
    source: str
    locked: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    try:
        loaded = load()
    except SettingsError as error:
        print(f"copilotd config: {error}", file=sys.stderr)
        return 1
    lines = settings_lines(loaded)
    for problem in loaded.problems:
        print(f"copilotd config: {problem}", file=sys.stderr)
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(lines)).decode() + "\n")
        return 1 if loaded.problems else 0
    print(f"# system: {system_file()}\n# user:   {user_file()}")
    for line in lines:
        value = msgspec.json.encode(line.value).decode()
        print(f"\n# {line.meaning}")
        print(f"{line.key} = {value}    # {line.source}{', locked' if line.locked else ''}")
    return 1 if loaded.problems else 0


def settings_lines(loaded: Loaded) -> list[Line]:
    return [
        Line(key, value, words[name], loaded.sources.get(key, "default"), key in loaded.locked)
        for section, words in (("daemon", meanings(DaemonSettings)), ("session", meanings(SessionSettings)))
        for name, value in msgspec.structs.asdict(getattr(loaded.settings, section)).items()
        for key in (f"{section}.{name}",)
    ]
