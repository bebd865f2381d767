"""copilotd stdio: the language server for one editor window.

Nothing but LSP frames may reach stdout, whatever a library, a child or a warning prints. So the first thing
done is to move the frames to a descriptor of their own, before anything that could print is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable

    from copilotd.config import Loaded
    from copilotd.lsp.session import Session

HELP = "speak LSP over stdin and stdout, as editors start it"
MORE = """\
It finds your daemon or starts it. Two variables of its environment say where that is:

    COPILOTD_HOME     one folder for settings, socket, logs, caches and models, in the place of the usual ones
    COPILOTD_SOCKET   the socket of a daemon that runs elsewhere, such as one forwarded into a container:
                      nothing is started or replaced there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # editors add these to whatever command they are given
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    stdin, stdout = take_standard_streams()
    if os.isatty(stdin):
        print("copilotd speaks LSP here; an editor starts it. Ctrl-C ends it.", file=sys.stderr)
    return serve(stdin, stdout)


def take_standard_streams() -> tuple[int, int]:
    """Private descriptors for the frames. 0 now gives nothing, 1 leads to stderr, or nowhere if that is 1."""
    stdin, stdout = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    try:
        together = os.path.sameopenfile(stdout, 2)
    except OSError:
        together = True
    if together:
        os.dup2(nowhere, 2)
    os.dup2(2, 1)
    os.close(nowhere)
    return stdin, stdout


def serve(stdin: int, stdout: int, session: Callable[[Loaded], Session] | None = None) -> int:
    """Be the front of one editor until it leaves, with a session of the caller's. Returns the exit code."""
    import asyncio
    import gc
    import logging

    gc.disable()  # LSP's types are classes by the thousand: collecting among them is a tenth of the start
    from copilotd import config
    from copilotd.daemon import platform

    try:
        platform.require_supported()
    except platform.Unsupported as problem:
        print(problem, file=sys.stderr)
        return 1
    from copilotd.lsp.server import Front

    gc.freeze()
    gc.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="copilotd: %(message)s")
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)  # it logs whole messages, and so user text
    _leave_the_workspace()
    try:
        loaded = config.load()
    except config.SettingsError:
        loaded = config.Loaded()  # the daemon reads the same files and says what is wrong

    async def front() -> int:
        return await Front(_connect, loaded, session(loaded) if session else None).serve(stdin, stdout)

    return asyncio.run(front())


async def _connect() -> tuple[StreamReader, StreamWriter]:
    from copilotd.daemon.launch import LaunchError, connect
    from copilotd.lsp.link import Unreachable

    try:
        return await connect()
    except LaunchError as error:
        raise Unreachable(str(error)) from None


def _leave_the_workspace() -> None:
    from copilotd.daemon import platform

    os.umask(0o077)
    try:
        os.chdir(platform.private_folder(platform.state_folder()))
    except (OSError, platform.Unusable):
        os.chdir("/")
