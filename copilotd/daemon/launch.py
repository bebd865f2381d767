"""Find the user's daemon, or start it: exactly one, whatever happens at the same moment.

Runs in every front, so it loads nothing heavy. `COPILOTD_SOCKET` names a socket directly (one forwarded
from another machine); then nothing is ever started or replaced.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from copilotd import wire
from copilotd.daemon import platform
from copilotd.daemon.attempts import Attempts
from copilotd.daemon.lock import daemon_lock, recorded, start_lock
from copilotd.version import newer
from copilotd.version import version as own_version

WELCOME_S = 10.0
"""how long a daemon may take to say Welcome: it may be importing"""
START_S = 60.0
"""how long a start may take, a predecessor's end and other fronts' attempts included"""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LaunchError(Exception):
    """There is no daemon and none can be started. The message is for the person: what to do, where the log is."""


class Found(Struct, frozen=True):
    path: Path
    version: str
    pid: int


async def connect(
    environ: Mapping[str, str] = os.environ, command: Sequence[str] | None = None, start: bool = True
) -> Streams:
    """Reader and writer of a connection to the user's daemon; the caller says Hello.

    A daemon that is older than this program is asked to leave first. Without `start` nothing is started or
    replaced. `command` starts a daemon in the place of our own. Raises LaunchError.
    """
    try:
        return await _connect(environ, command or platform.serve_command(), start)
    except (platform.Unsupported, platform.Unusable) as problem:
        raise LaunchError(str(problem)) from None


async def _connect(environ: Mapping[str, str], command: Sequence[str], start: bool) -> Streams:
    platform.require_supported()
    if named := environ.get("COPILOTD_SOCKET"):
        try:
            return await asyncio.open_unix_connection(named)
        except OSError as error:
            raise LaunchError(
                f"No copilotd answers at {named} (COPILOTD_SOCKET): {error.strerror or error}"
            ) from None
    found = await find(environ)
    if start and (found is None or newer(own_version(), found.version)):
        async with _starting(environ):
            found = await find(environ)  # another front may have been faster
            if found is not None and newer(own_version(), found.version):
                await _replace(found)
                found = None
            if found is None:
                path = await _start(environ, command)
                return await asyncio.open_unix_connection(path)
    if found is None:
        raise LaunchError("copilotd is not running: an editor starts it, and so does `copilotd explain`")
    return await asyncio.open_unix_connection(found.path)


async def find(environ: Mapping[str, str] = os.environ) -> Found | None:
    """The daemon that runs, wherever its socket lies."""
    for path in _places(environ):
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError:
            continue
        try:
            if platform.is_ours(writer.get_extra_info("socket")):
                return await _ask_version(path, reader, writer)
        except (OSError, EOFError, wire.FrameError):  # TimeoutError is an OSError
            continue
        finally:
            writer.close()
    return None


def _places(environ: Mapping[str, str]) -> list[Path]:
    """Every socket of ours that may be the daemon's; folders that are missing or unsafe are passed over."""
    places: list[Path] = []
    for folder in platform.socket_folders(environ):
        path = platform.socket_path(folder)
        try:
            platform.check_folder(folder)
            platform.check_folder(path.parent)
        except platform.Unusable:
            continue
        places.append(path)
    _, path_in_lock = recorded(daemon_lock(environ))
    return list(dict.fromkeys([*places, path_in_lock] if path_in_lock else places))


async def _ask_version(path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Found:
    writer.write(wire.frame(wire.Hello(own_version(), "control")))
    async with asyncio.timeout(WELCOME_S):
        welcome = wire.from_daemon(await wire.read_frame(reader))
    if not isinstance(welcome, wire.Welcome):
        raise wire.FrameError("the first message is not Welcome")
    return Found(path, welcome.version, welcome.pid)


@asynccontextmanager
async def _starting(environ: Mapping[str, str]) -> AsyncIterator[None]:
    """One front at a time starts or replaces a daemon."""
    lock = start_lock(environ)
    try:
        async with asyncio.timeout(START_S):
            while not lock.acquire():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise LaunchError("another window has been starting copilotd for a minute; try again") from None
    try:
        yield
    finally:
        lock.release()


async def _replace(found: Found) -> None:
    """Ask the older daemon to leave. Its successor waits for its lock, so for its models to be freed."""
    reader, writer = await asyncio.open_unix_connection(found.path)
    try:
        writer.write(wire.frame(wire.Hello(own_version(), "control")))
        writer.write(wire.frame(wire.Control("stop")))
        async with asyncio.timeout(WELCOME_S):
            while True:
                await wire.read_frame(reader)
    except (OSError, EOFError):
        pass  # it has closed the connection: it is leaving
    finally:
        writer.close()


async def _start(environ: Mapping[str, str], command: Sequence[str]) -> Path:
    """Start a daemon and wait until it listens; its socket."""
    log_path = platform.log_path(environ)
    attempts = Attempts(environ)
    if (wait_s := attempts.wait_s()) > 0:
        raise LaunchError(
            f"copilotd's daemon ended {attempts.count()} times while it was starting; "
            f"it is tried again in {wait_s:.0f} s. The log is {log_path}"
        )
    attempts.add()
    process = platform.spawn(command, platform.private_folder(log_path.parent), environ)
    try:
        async with asyncio.timeout(START_S):
            line = await _first_line(process)
    except TimeoutError:
        line = "failed it does not get ready"
    process.poll()  # the parent of a detached daemon has ended: leave no zombie
    word, _, rest = line.partition(" ")
    if word == "ready":
        return Path(rest)
    raise LaunchError(f"copilotd's daemon did not start: {rest or 'it ended'}. The log is {log_path}")


async def _first_line(process: subprocess.Popen[bytes]) -> str:
    """`ready SOCKET`, `failed MESSAGE`, or "" from a process that ended without a word."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), process.stdout
    )
    try:
        return (await reader.readline()).decode(errors="replace").rstrip("\n")
    finally:
        transport.close()
