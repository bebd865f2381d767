"""An editor without a screen: drives the real `copilotd --stdio` as VS Code and Neovim do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from lsprotocol import types as lsp
from msgspec import Struct
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from copilotd.config import SessionSettings
from copilotd.replay.buffer import Buffer
from copilotd.replay.languages import language_id
from copilotd.replay.trace import Edit, Position


class Ghost(Struct, frozen=True):
    """An item on screen: `text` replaces the range of the buffer's version it was asked for."""

    path: str
    version: int
    at: Position
    range: tuple[Position, Position]
    text: str

    @property
    def edit(self) -> Edit:
        return Edit(self.range, self.text)


class Reply(Struct, frozen=True):
    """What came back for one request."""

    ghost: Ghost | None
    outcome: str
    """answered, empty, cancelled, error"""
    ms: float
    stale: bool
    """the document had changed when the answer came, and it was no error"""


class Editor:
    """One window on one folder. `async with` starts the language server and ends it as an editor does."""

    def __init__(
        self,
        folder: Path,
        settings: SessionSettings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.buffers: dict[str, Buffer] = {}
        self.ready = asyncio.Event()
        self.messages: list[str] = []
        """what was shown to the person"""
        self._settings = settings or SessionSettings()
        self._environment = environment
        self._client = LanguageClient("copilotd-replay", "1")
        self._requests = 0

    @property
    def pid(self) -> int:
        """The front's process id."""
        server = self._client._server
        if server is None:
            raise RuntimeError("the language server is not running")
        return server.pid

    async def __aenter__(self) -> Editor:
        client = self._client
        # pygls logs whole messages; and, on Ctrl-C, that nobody waits for them any more
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)

        @client.feature("copilotd/didChangeStatus")
        def _status(parameters: Any) -> None:
            if parameters.state in ("ready", "failed"):
                self.ready.set()

        @client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def _message(parameters: lsp.ShowMessageParams) -> None:
            self.messages.append(parameters.message)

        @client.feature(lsp.WINDOW_LOG_MESSAGE)
        def _log(parameters: lsp.LogMessageParams) -> None:
            pass

        settings = msgspec.to_builtins(self._settings)

        @client.feature(lsp.WORKSPACE_CONFIGURATION)
        def _configuration(parameters: lsp.ConfigurationParams) -> list[object]:
            return [settings for _ in parameters.items]

        await client.start_io(sys.executable, "-P", "-m", "copilotd", "--stdio", env=self._environment)
        self._stderr = asyncio.create_task(self._drain())
        await client.initialize_async(
            lsp.InitializeParams(
                process_id=None,
                capabilities=lsp.ClientCapabilities(),
                workspace_folders=[lsp.WorkspaceFolder(self.folder.as_uri(), self.folder.name)],
                initialization_options={"copilotd": settings},
                client_info=lsp.ClientInfo("copilotd-replay"),
            )
        )
        client.initialized(lsp.InitializedParams())
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._client.shutdown_async(None), 10)
        with contextlib.suppress(RuntimeError):  # Ctrl-C has ended it already
            self._client.exit(None)
        server = self._client._server
        if server is not None:
            try:
                await asyncio.wait_for(server.wait(), 10)
            except TimeoutError:
                server.kill()
        await self._client.stop()
        await self._stderr

    async def _drain(self) -> None:
        server = self._client._server
        if server is not None and server.stderr is not None:
            while await server.stderr.read(65536):
                pass

    def uri(self, path: str) -> str:
        return (self.folder / path).as_uri()

    def open(self, path: str, text: str) -> None:
        buffer = self.buffers[path] = Buffer(text)
        item = lsp.TextDocumentItem(self.uri(path), language_id(path), buffer.version, text)
        self._client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, path: str, *edits: Edit) -> None:
        buffer = self.buffers[path]
        buffer.apply(edits)
        self._client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(buffer.version, self.uri(path)),
                [lsp.TextDocumentContentChangePartial(_range(edit.range), edit.text) for edit in edits],
            )
        )

    def save(self, path: str) -> None:
        self._client.text_document_did_save(
            lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(self.uri(path)))
        )

    def close(self, path: str) -> None:
        del self.buffers[path]
        self._client.text_document_did_close(
            lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(self.uri(path)))
        )

    def complete(self, path: str, at: Position, *, invoked: bool = False) -> tuple[int, asyncio.Task[Reply]]:
        """Ask at a position; the request's id (for `cancel`) and its reply."""
        self._requests += 1
        kind = (
            lsp.InlineCompletionTriggerKind.Invoked if invoked else lsp.InlineCompletionTriggerKind.Automatic
        )
        future = self._client.protocol.send_request(
            lsp.TEXT_DOCUMENT_INLINE_COMPLETION,
            lsp.InlineCompletionParams(
                lsp.InlineCompletionContext(kind),
                lsp.TextDocumentIdentifier(self.uri(path)),
                lsp.Position(*at),
            ),
            msg_id=self._requests,
        )
        reply = self._reply(
            path, self.buffers[path].version, at, time.perf_counter(), asyncio.wrap_future(future)
        )
        return self._requests, asyncio.create_task(reply)

    def cancel(self, request: int) -> None:
        self._client.cancel_request(lsp.CancelParams(request))

    async def _reply(
        self, path: str, version: int, at: Position, asked: float, future: asyncio.Future[object]
    ) -> Reply:
        try:
            result = await future
        except JsonRpcException as error:
            outcome = "cancelled" if error.code == lsp.LSPErrorCodes.RequestCancelled else "error"
            return Reply(None, outcome, _ms_since(asked), False)
        items = result.items if isinstance(result, lsp.InlineCompletionList) else result
        stale = path not in self.buffers or self.buffers[path].version != version
        if not isinstance(items, list | tuple) or not items:
            return Reply(None, "empty", _ms_since(asked), False)
        item: lsp.InlineCompletionItem = items[0]
        text = item.insert_text if isinstance(item.insert_text, str) else item.insert_text.value
        where = (at, at) if item.range is None else (_position(item.range.start), _position(item.range.end))
        return Reply(Ghost(path, version, at, where, text), "answered", _ms_since(asked), stale)


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def _range(positions: tuple[Position, Position]) -> lsp.Range:
    return lsp.Range(lsp.Position(*positions[0]), lsp.Position(*positions[1]))


def _position(position: lsp.Position) -> Position:
    return position.line, position.character
