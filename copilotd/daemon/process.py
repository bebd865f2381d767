"""The life of a daemon process, from its start to its exit code."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from copilotd import config, wire
from copilotd.daemon import platform
from copilotd.daemon.address import Address, AlreadyRunning
from copilotd.daemon.attempts import Attempts
from copilotd.daemon.loading import MakeBackend, MakeCompleter
from copilotd.daemon.log import catch_stray_output, log, start_log
from copilotd.daemon.server import Daemon
from copilotd.version import version as own_version

ANSWER_S = 10.0
"""a daemon that does not say Welcome for so long does not answer"""


def serve(
    make_backend: MakeBackend,
    make_completer: MakeCompleter,
    *,
    load_settings: Callable[[], config.Loaded] = config.load,
    version: str | None = None,
    detach: bool = False,
) -> int:
    """Be the user's daemon until it is stopped; the exit code.

    The first line on stdout is `ready SOCKET` or `failed MESSAGE`. With another daemon running it is that
    one's socket, and the code is 0.
    """
    os.umask(0o077)
    if detach:
        platform.detach()
    version = version or own_version()
    log_path = platform.log_path()
    try:
        platform.require_supported()
        os.chdir(platform.private_folder(log_path.parent))
        start_log(log_path)
        _tame_libraries()
        address = Address.claim(answers)
    except AlreadyRunning as running:
        sys.stderr.write(f"{running}\n")
        return _say(f"ready {running.path}", 0)
    except (platform.Unusable, platform.Unsupported) as problem:
        log.error("no start: %s", problem)
        sys.stderr.write(f"{problem}\n")
        return _say(f"failed {problem}", 1)
    log.info("copilotd %s at %s", version, address.path)
    daemon = Daemon(
        make_backend,
        make_completer,
        load_settings,
        version=version,
        log_path=log_path,
        survived=Attempts().forget,
    )
    _say(f"ready {address.path}", 0)
    if detach:
        catch_stray_output(log_path.with_suffix(".out"))
    else:
        os.dup2(2, 1)
    ended = asyncio.run(daemon.run(address))
    log.info("gone")
    if not ended:
        os._exit(0)
    return 0  # the lock goes with the process, so that a successor loads into memory that is free


def answers(path: Path) -> bool:
    """Does a daemon answer at this socket?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(path))
            connection.sendall(wire.frame(wire.Hello(own_version(), "control")))
            return bool(connection.recv(wire.HEADER.size))
        except OSError:
            return False


def _say(line: str, code: int) -> int:
    sys.stdout.write(line.replace("\n", " ") + "\n")
    sys.stdout.flush()
    return code


def _tame_libraries() -> None:
    """What they compile at run time is kept where only we may write, and they fetch nothing."""
    try:
        folder = platform.private_folder(platform.cache_folder() / "compiled")
    except platform.Unusable:  # a cache that cannot be written is no reason not to start
        folder = platform.private_folder(platform.state_folder() / "compiled")
    for variable in (
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "CUDA_CACHE_PATH",
    ):
        os.environ[variable] = str(folder / variable.lower())
    # nothing is fetched here, by no library either (bitsandbytes asks the hub for kernels where it can)
    os.environ["HF_HUB_OFFLINE"] = "1"
