"""What `copilotd status|metrics|stop|reload|unload` say to the daemon and hear from it."""

from __future__ import annotations

import asyncio
import os
from typing import Literal

import msgspec

from copilotd import wire
from copilotd.daemon.launch import LaunchError, connect
from copilotd.daemon.lock import daemon_lock
from copilotd.daemon.metrics import Report
from copilotd.daemon.status import Status
from copilotd.version import version

GONE_S = 15.0


async def ask_status() -> Status:
    """Raises LaunchError when no daemon runs, or none any more."""
    return msgspec.msgpack.decode(await _report("status"), type=Status)


async def ask_metrics() -> Report:
    """Raises LaunchError when no daemon runs, or none any more."""
    return msgspec.msgpack.decode(await _report("metrics"), type=Report)


async def _report(verb: Literal["status", "metrics"]) -> msgspec.Raw:
    answer = await _command(verb)
    if isinstance(answer, wire.Done):
        raise LaunchError(answer.message)
    return answer.body


async def tell(verb: Literal["stop", "reload", "unload"]) -> wire.Done:
    """Returns when it is done: the daemon gone, the models loaded or failed, freed. Raises LaunchError."""
    answer = await _command(verb)
    assert isinstance(answer, wire.Done)
    return answer


async def _command(
    verb: Literal["status", "metrics", "stop", "reload", "unload"],
) -> wire.Report | wire.Done:
    reader, writer = await connect(start=False)
    try:
        writer.write(wire.frame(wire.Hello(version(), "control")))
        writer.write(wire.frame(wire.Control(verb)))
        while True:
            message = wire.from_daemon(await wire.read_frame(reader))
            if isinstance(message, wire.Report | wire.Done):
                break
        if verb == "stop":
            return await _gone()
        return message
    except (EOFError, ConnectionError):
        return wire.Done("the daemon has ended", failed=verb != "stop")
    finally:
        writer.close()


async def _gone() -> wire.Done:
    """The daemon's models are freed when its process is gone, and with it the lock."""
    if "COPILOTD_SOCKET" in os.environ:
        return wire.Done("stopping")
    lock = daemon_lock()
    try:
        async with asyncio.timeout(GONE_S):
            while not lock.acquire():
                await asyncio.sleep(0.02)
    except TimeoutError:
        return wire.Done("the daemon was told to stop but still runs", failed=True)
    lock.release()
    return wire.Done("stopped")
