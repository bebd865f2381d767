"""What `copilotd status|stop|reload|unload` say to the daemon and hear from it."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from copilotd import wire
from copilotd.daemon.launch import connect
from copilotd.daemon.status import Status
from copilotd.version import version


async def ask_status() -> Status:
    """Raises LaunchError when no daemon runs."""
    answer = await _command("status")
    assert isinstance(answer, wire.Report)
    return msgspec.msgpack.decode(answer.status, type=Status)


async def tell(verb: Literal["stop", "reload", "unload"]) -> wire.Done:
    """Returns when it is done: stopped and gone, loaded or failed, freed. Raises LaunchError."""
    answer = await _command(verb)
    assert isinstance(answer, wire.Done)
    return answer


async def _command(verb: Literal["status", "stop", "reload", "unload"]) -> wire.Report | wire.Done:
    reader, writer = await connect(start=False)
    try:
        writer.write(wire.frame(wire.Hello(version(), "control")))
        writer.write(wire.frame(wire.Control(verb)))
        while True:
            message = wire.from_daemon(await wire.read_frame(reader))
            if isinstance(message, wire.Report | wire.Done):
                break
        if verb == "stop":
            await reader.read()  # until it has closed the connection
        return message
    except asyncio.IncompleteReadError:
        return wire.Done("the daemon has ended", failed=verb != "stop")
    finally:
        writer.close()
