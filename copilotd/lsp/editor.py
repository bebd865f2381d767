"""The editor's process: when it ends, so do we, even while something else holds our stdin open."""

from __future__ import annotations

import asyncio
import os

POLL = 1.0
"""seconds between looks where the system cannot tell us"""


async def ended(process: int) -> None:
    """Returns when the process has ended; never if there is no such process here (another pid namespace)."""
    try:
        descriptor = os.pidfd_open(process)
    except AttributeError:
        await _polled(process)
        return
    except (OSError, OverflowError):
        await asyncio.Event().wait()
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _polled(process: int) -> None:
    seen = False
    while True:
        try:
            os.kill(process, 0)
            seen = True
        except ProcessLookupError:
            if seen:
                return
            await asyncio.Event().wait()
        except (OSError, OverflowError):
            seen = True
        await asyncio.sleep(POLL)
