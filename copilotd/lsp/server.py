"""The front: one language server per editor window, in front of the user's one daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

from pygls.exceptions import JsonRpcRequestCancelled
from pygls.lsp.server import LanguageServer

from copilotd import __version__, wire
from copilotd.config import Loaded
from copilotd.lsp import editor, methods
from copilotd.lsp.display import Display
from copilotd.lsp.faults import place
from copilotd.lsp.fetching import Fetching
from copilotd.lsp.items import Shown
from copilotd.lsp.link import Connector, Link
from copilotd.lsp.protocol import FrontProtocol
from copilotd.lsp.session import Session
from copilotd.lsp.transport import BadFrame, Output, open_input, read_body
from copilotd.lsp.workspace import Workspace

log = logging.getLogger(__name__)

GRACE = 1.0
"""seconds that the last frames have to reach the editor"""


class Front(LanguageServer):
    """State of the window, and the way to the editor. What a method does stands in `methods`."""

    protocol: FrontProtocol

    def __init__(self, connect: Connector, own: Loaded, session: Session | None = None) -> None:
        super().__init__("copilotd", __version__, protocol_cls=FrontProtocol)
        self.session = session or Session(own.settings.session)
        self.workspace_settings = Workspace(own)
        self.shown = Shown()
        self.link = Link(connect, self)
        self.session.attach(self.link)
        self.capabilities: object = {}
        """as the client sent them"""
        self.display = Display(self)
        self.fetching = Fetching(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.protocol.reads = {module.METHOD: module.Params for module in methods.MODULES}
        for module in methods.MODULES:
            self.feature(module.METHOD)(module.handle)

    # ---- life --------------------------------------------------------------------------------------------

    async def serve(self, stdin: int, stdout: int) -> int:
        """Speak LSP over two descriptors until the editor leaves, in whatever way. Returns the exit code."""
        asyncio.get_running_loop().set_exception_handler(_log_fault)
        output = Output(stdout)
        self.protocol.set_writer(output)
        reading = asyncio.create_task(self._read(stdin))
        broken = asyncio.create_task(_until(output.broken))
        await asyncio.wait([reading, broken, self._left], return_when=asyncio.FIRST_COMPLETED)
        self.protocol.cancel_requests()
        for task in (reading, broken, *self._tasks):
            task.cancel()
        self.fetching.close()
        await self.link.close()
        await output.drained(GRACE)
        return 0 if self.protocol.shut_down else 1

    def leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    def watch(self, process: int) -> None:
        """Leave when that process ends."""
        task = asyncio.create_task(self._watched(process))
        self._tasks.add(task)

    async def _watched(self, process: int) -> None:
        await editor.ended(process)
        log.warning("the editor's process has ended")
        self.leave()

    async def _read(self, stdin: int) -> None:
        try:
            reader = await open_input(stdin)
            while (body := await read_body(reader)) is not None:
                self.protocol.receive(body)
        except BadFrame as error:
            log.error("the editor's stream cannot be read: %s", error)

    # ---- to the editor -----------------------------------------------------------------------------------

    def supports(self, *path: str) -> bool:
        """Whether the client's capabilities have something at that path that is not false."""
        found = self.capabilities
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found is not None and found is not False

    async def request(self, method: str, params: object) -> Any:
        """Ask the editor; None if it answers with an error."""
        return await asyncio.wrap_future(self.protocol.send_request(method, params))

    def configure(self) -> None:
        """Tell the daemon the settings that now hold, and the person what was not taken."""
        outcome = self.workspace_settings.outcome()
        self.session.configure(outcome.settings, outcome.folders)
        for problem in outcome.problems:
            self.display.say(wire.Notice("warning", f"copilotd: {problem}"))

    # ---- from the daemon (link.Listener) -----------------------------------------------------------------

    def greeting(self) -> Iterator[wire.FromFront]:
        return self.session.greeting()

    def heard(self, message: wire.State | wire.Notice | wire.Offer) -> None:
        match message:
            case wire.Notice():
                self.display.say(message)
            case wire.Offer():
                self.fetching.offer(message)
            case wire.State():
                self.display.state(message)

    # ---- pygls -------------------------------------------------------------------------------------------

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls shows these to the person; we log their type and place. A request overtaken is no error."""
        if not isinstance(error, JsonRpcRequestCancelled):
            log.warning("%s", place(error))


def _log_fault(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """asyncio's own handler prints messages of exceptions, and so perhaps user text."""
    error = context.get("exception")
    log.error("%s", place(error) if error else context["message"])


async def _until(event: asyncio.Event) -> None:
    await event.wait()
