"""copilotd unload: free the models' memory at once."""

from __future__ import annotations

import argparse
import asyncio
import sys

from copilotd.daemon.commands import tell
from copilotd.daemon.launch import LaunchError

HELP = "free the models' memory at once (the next request loads them again)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    try:
        done = asyncio.run(tell("unload"))
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    print(done.message)
    return int(done.failed)
