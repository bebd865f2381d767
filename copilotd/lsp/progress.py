"""`$/progress` while models load, for editors that show it."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd import wire

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

_tokens = count(1)


class LoadingProgress:
    """Follows the daemon's state. An editor that never answers `create` sees nothing and costs nothing."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._state: wire.State | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def update(self, state: wire.State) -> None:
        self._state = state
        self._changed.set()
        if state.state == "loading" and self._task is None:
            self._task = asyncio.create_task(self._show())
            self._task.add_done_callback(self._shown)

    def _shown(self, _: asyncio.Task[None]) -> None:
        self._task = None

    async def _show(self) -> None:
        token = f"copilotd-{next(_tokens)}"
        await self._front.request(
            types.WINDOW_WORK_DONE_PROGRESS_CREATE, types.WorkDoneProgressCreateParams(token)
        )
        if not self._loading():
            return
        self._tell(token, types.WorkDoneProgressBegin("copilotd", message=self._message(), percentage=0))
        while self._loading():
            self._tell(
                token, types.WorkDoneProgressReport(message=self._message(), percentage=self._percent())
            )
            self._changed.clear()
            await self._changed.wait()
        self._tell(token, types.WorkDoneProgressEnd(message=self._message()))

    def _loading(self) -> bool:
        return self._state is not None and self._state.state == "loading"

    def _percent(self) -> int:
        return round(100 * (self._state.progress or 0)) if self._state else 0

    def _message(self) -> str:
        return self._state.message if self._state else ""

    def _tell(
        self,
        token: str,
        value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd,
    ) -> None:
        self._front.protocol.notify(types.PROGRESS, types.ProgressParams(token, value))
