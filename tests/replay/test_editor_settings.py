"""The screenless editor and the real front: what it sets is in force, and it ends with it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from copilotd import wire
from copilotd.config import SessionSettings
from copilotd.replay.editor import Editor


def test_the_editors_settings_reach_the_daemon(tmp_path: Path) -> None:
    wanted = SessionSettings(max_latency_ms=0, multiline="never")
    (tmp_path / "w").mkdir()

    async def said() -> SessionSettings:
        configured: asyncio.Future[SessionSettings] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(wire.frame(wire.Welcome("0", 1)))
            while not configured.done():
                message = wire.from_front(await wire.read_frame(reader))
                if isinstance(message, wire.Configure):
                    configured.set_result(message.settings)
            await reader.read()
            writer.close()

        path = tmp_path / "s"
        async with (
            await asyncio.start_unix_server(serve, path),
            Editor(tmp_path / "w", wanted, os.environ | {"COPILOTD_SOCKET": str(path)}) as editor,
        ):
            editor.open("a.py", "x")
            return await asyncio.wait_for(configured, 60)

    assert asyncio.run(said()) == wanted


def test_a_front_that_ended_before_its_editor_is_left_quietly(tmp_path: Path) -> None:
    """As on Ctrl-C in a terminal, which reaches both."""

    async def left() -> None:
        nowhere = os.environ | {"COPILOTD_SOCKET": str(tmp_path / "nobody")}
        async with Editor(tmp_path, None, nowhere) as editor:
            server = editor._client._server
            assert server is not None
            server.kill()
            await server.wait()
            while not editor._client.stopped:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(left(), 60))
