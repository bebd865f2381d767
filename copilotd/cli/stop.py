"""copilotd stop: end the daemon."""

from __future__ import annotations

import argparse
import asyncio
import sys

from copilotd.daemon.commands import tell
from copilotd.daemon.launch import LaunchError

HELP = "end the daemon (the next keystroke starts it again)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    try:
        done = asyncio.run(tell("stop"))
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    print(done.message)
    return int(done.failed)
