"""pygls' protocol with our order of things.

- A handler's synchronous part runs when its message is read, so requests see the text as it was then.
- Every request gets exactly one response, also one that we cannot read.
- A fault of ours is logged by type and place and answered with nothing; it never becomes a popup.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol

from copilotd.lsp.faults import place
from copilotd.lsp.shapes import NoParams, Params

if TYPE_CHECKING:
    from cattrs import Converter
    from pygls.lsp.server import LanguageServer
    from pygls.protocol.json_rpc import MessageCallback, MessageHandler, MsgId

log = logging.getLogger(__name__)


class Cancelled(Params):
    id: int | str


class FrontProtocol(LanguageServerProtocol):
    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self.reads: Mapping[str, type[Params]] = {}
        """method -> what its parameters are read into"""
        self.initialized = False
        self.shut_down = False

    def _register_builtin_features(self) -> None:
        """None: documents, settings and the session's life are ours."""

    # ---- in ----------------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> None:
        """Handle one message of the editor. Never raises."""
        try:
            message = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self._refuse(None, JsonRpcParseError())
            return
        for part in message if isinstance(message, list) else [message]:
            try:
                self._handle(part)
            except Exception as error:
                log.error("a message was not handled: %s", place(error))

    def _handle(self, message: object) -> None:
        if not isinstance(message, dict):
            self._refuse(None, JsonRpcInvalidRequest())
            return
        number, method = message.get("id"), message.get("method")
        if isinstance(method, str):
            if "id" not in message:
                self._notified(method, message.get("params"))
            elif isinstance(number, int | str):
                self._requested(number, method, message.get("params"))
            else:
                self._refuse(None, JsonRpcInvalidRequest())
        elif isinstance(number, int | str) and ("result" in message or "error" in message):
            self._answered(number, message)
        else:
            self._refuse(None, JsonRpcInvalidRequest())

    def _requested(self, number: MsgId, method: str, raw: object) -> None:
        if self.shut_down:
            self._refuse(number, JsonRpcInvalidRequest("shutdown was asked for"))
        elif not self.initialized and method != types.INITIALIZE:
            self._refuse(number, JsonRpcServerNotInitialized())
        elif self.initialized and method == types.INITIALIZE:
            self._refuse(number, JsonRpcInvalidRequest("initialize was asked for before"))
        else:
            try:
                params = self._read(method, raw)
            except msgspec.ValidationError as error:
                self._refuse(number, JsonRpcInvalidParams(str(error)))
            else:
                self.handle_message(JsonRPCRequestMessage(number, method, self.VERSION, params))

    def _notified(self, method: str, raw: object) -> None:
        if method != types.EXIT and (self.shut_down or not self.initialized):
            return
        try:
            if method == types.CANCEL_REQUEST:
                self._cancel(msgspec.convert(raw, Cancelled).id)
                return
            params = self._read(method, raw)
        except msgspec.ValidationError as error:
            log.warning("%s cannot be read: %s", method, error)
        else:
            self.handle_message(JsonRPCNotification(method, self.VERSION, params))

    def _answered(self, number: MsgId, message: Mapping[str, Any]) -> None:
        """The editor's answer to a request of ours; an error counts as no result."""
        future = self._request_futures.get(number)
        if isinstance(future, Future) and not future.done():
            del self._request_futures[number]
            self._result_types.pop(number, None)
            future.set_result(message.get("result"))

    def _read(self, method: str, raw: object) -> Params:
        return msgspec.convert({} if raw is None else raw, self.reads.get(method, NoParams))

    def _cancel(self, number: MsgId) -> None:
        future: object = self._request_futures.get(number)
        if isinstance(future, asyncio.Future):
            # a task that has not begun yet would end without its handler knowing
            future.get_loop().call_soon(future.cancel)
        elif isinstance(future, Future):
            future.cancel()

    def cancel_requests(self) -> None:
        """End every request in flight, the editor's and ours."""
        for future in list(self._request_futures.values()):
            future.cancel()

    # ---- running -----------------------------------------------------------------------------------------

    def _execute_handler(
        self,
        msg_id: MsgId,
        handler: MessageHandler,
        callback: MessageCallback,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Run the handler now; what it leaves to be awaited can be cancelled under the message's id."""
        future: Future[Any] | asyncio.Future[Any]
        try:
            result = handler(*(args or ()), **(kwargs or {}))
        except JsonRpcException as error:
            future = Future()
            future.set_exception(error)
        except Exception as error:
            log.error("a handler failed: %s", place(error))
            future = Future()
            future.set_result(None)
        else:
            if inspect.isawaitable(result):
                future = asyncio.ensure_future(_faultless(result))
                self._request_futures[msg_id] = future  # type: ignore[assignment]  # pygls mixes them too
            else:
                future = Future()
                future.set_result(result)
        future.add_done_callback(callback)  # type: ignore[arg-type]

    # ---- out ---------------------------------------------------------------------------------------------

    def _refuse(self, number: MsgId | None, error: JsonRpcException) -> None:
        response = types.ResponseErrorMessage(error=error.to_response_error(), id=number)
        self._send_data(response)


async def _faultless(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except JsonRpcException:
        raise
    except Exception as error:
        log.error("a handler failed: %s", place(error))
        return None
