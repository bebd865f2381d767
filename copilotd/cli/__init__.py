"""The command line: one module per command, and only the one that is asked for is loaded.

A command's module has HELP (one line), add_arguments(parser) and run(args) -> exit code; and MORE, where one
line and the arguments do not teach enough.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from copilotd import __version__

INTERRUPTED = 130

ABOUT = """\
Private inline code completion for one person's editors: a resident daemon with a
target and a draft model, and a language server for each editor window.

An editor starts `copilotd --stdio`; that finds your daemon or starts it.
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] == "--stdio":
        words[0] = "stdio"
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # nobody reads us any more (copilotd status | head); keep Python from saying so at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return code


def commands() -> list[str]:
    """Names of the commands there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(command: str) -> ModuleType:
    return import_module(f"{__name__}.{command}")


def _run(words: list[str]) -> int:
    if not words or words[0] not in commands():
        _overview().parse_args(words or ["--help"])
        return 2
    command = load(words[0])
    parser = argparse.ArgumentParser(
        f"copilotd {words[0]}",
        description=_sentence(command.HELP),
        epilog=getattr(command, "MORE", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    code: int = command.run(parser.parse_args(words[1:]))
    return code


def _overview() -> argparse.ArgumentParser:
    """The parser for everything but a command: it teaches, and refuses what is unknown."""
    parser = argparse.ArgumentParser(
        "copilotd",
        description=ABOUT,
        epilog="`copilotd COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"copilotd {__version__}")
    parser.add_argument("--stdio", action="store_true", help="the same as `copilotd stdio`")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in commands():
        choices.add_parser(name, help=load(name).HELP)
    return parser


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
