"""copilotd reload: read the settings again and load the models anew."""

from __future__ import annotations

import argparse
import asyncio
import sys

from copilotd.daemon.commands import tell
from copilotd.daemon.launch import LaunchError

HELP = "read the settings again and load the models anew"
MORE = "Editors stay connected; a request that runs is answered empty."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    try:
        done = asyncio.run(tell("reload"))
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1
    print(done.message)
    return int(done.failed)
