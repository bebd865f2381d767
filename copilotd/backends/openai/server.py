"""The HTTP side: one thread with an event loop, a pool of connections, streams that end when nobody wants them.

The engine's thread asks and waits; closing a stream closes its connection at once, which is how the server
hears that it may stop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import httpx2
import msgspec

from copilotd import __version__
from copilotd.backends.openai.answers import Choice, Models, Tokens, chunk, cut_short, whole
from copilotd.backends.openai.endpoint import Endpoint
from copilotd.backends.openai.failure import Failure, of_content, of_status, of_transport

CONNECT_S = 2.0
KEEP_S = 55.0
"""Idle connections are kept for so long: below the minute after which proxies drop them."""
DRAIN_S = 0.2
LARGEST_ANSWER = 1 << 20
"""bytes of an answer that is not streamed"""

T = TypeVar("T")


class Stream:
    """One answer as it comes. Read and closed by one thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: queue.SimpleQueue[Choice | Failure] = queue.SimpleQueue()
        self._task: asyncio.Future[None] | None = None

    def next(self, timeout_s: float) -> Choice | None:
        """What came; None: nothing within that time. Raises Failure."""
        try:
            arrived = self._arrived.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(arrived, Failure):
            raise arrived
        return arrived

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """On the loop."""
        self._task = asyncio.ensure_future(work)

    def put(self, arrived: Choice | Failure) -> None:
        self._arrived.put(arrived)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Server:
    def __init__(self, endpoint: Endpoint) -> None:
        """Raises ValueError for a proxy of the environment's that is no address."""
        self._endpoint = endpoint
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(self._connect(), None)
        except BaseException:
            self._end_loop()
            raise

    def complete(self, body: dict[str, object]) -> Stream:
        """Ask for a completion; the stream begins at once and ends with a finish_reason."""
        stream = Stream(self._loop)
        request = msgspec.json.encode(body)
        self._loop.call_soon_threadsafe(lambda: stream.begin(self._stream(request, stream)))
        return stream

    def models(self, timeout_s: float) -> Models:
        """Raises Failure."""
        return self._wait(self._json("GET", f"{self._endpoint.url}/models", None, Models), timeout_s)

    def tokens(self, model: str, text: str, timeout_s: float) -> list[int]:
        """How the server's tokenizer splits a text. Raises Failure where it cannot say."""
        url = f"{self._endpoint.url.removesuffix('/v1')}/tokenize"
        body: dict[str, object] = {"model": model, "prompt": text, "add_special_tokens": False}
        return self._wait(self._json("POST", url, body, Tokens), timeout_s).tokens

    def close(self) -> None:
        with suppress(Failure):
            self._wait(self._end(), CONNECT_S)
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECT_S)
        if not self._thread.is_alive():
            self._loop.close()

    # ---- on the loop ---------------------------------------------------------------------------------------

    async def _connect(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=self._endpoint.headers() | {"User-Agent": f"copilotd/{__version__}"},
            verify=self._endpoint.verify,
            trust_env=self._endpoint.trusts_environment,
            timeout=httpx2.Timeout(None, connect=CONNECT_S),  # silence is judged by who waits
            limits=httpx2.Limits(max_connections=8, max_keepalive_connections=4, keepalive_expiry=KEEP_S),
        )

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def _stream(self, request: bytes, stream: Stream) -> None:
        try:
            await self._receive(request, stream)
        except Failure as failure:
            stream.put(failure)
        except Exception as error:  # whoever waits must hear of it
            stream.put(of_transport(error))

    async def _receive(self, request: bytes, stream: Stream) -> None:
        """Everything that comes goes to `stream`; its last piece has a finish_reason."""
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        url = f"{self._endpoint.url}/completions"
        async with self._client.stream("POST", url, content=request, headers=headers) as response:
            if response.status_code != 200:
                raise of_status(response.status_code, response.headers)
            response.encoding = "utf-8"  # whatever the header says: JSON is nothing else
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "application/json":
                stream.put(whole(await _limited(response)))
                return
            if kind != "text/event-stream":
                raise of_content(kind)
            events = aiter(httpx2.EventSource(response))
            async for event in events:
                choice = None if event.data == "[DONE]" else chunk(event.data)
                if choice is None:
                    continue
                stream.put(choice)
                if choice.finish_reason is not None:
                    await _drain(events)
                    return
        raise cut_short()

    async def _json(self, method: str, url: str, body: dict[str, object] | None, kind: type[T]) -> T:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._client.stream(method, url, content=content, headers=headers) as response:
                if response.status_code != 200:
                    raise of_status(response.status_code, response.headers)
                return msgspec.json.decode(await _limited(response), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise of_content("application/json") from None
        except (httpx2.HTTPError, OSError) as error:
            raise of_transport(error) from None

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """From another thread, until it is done. Raises what the work raises, and Failure when time is up."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise Failure("does not answer") from None


async def _limited(response: httpx2.Response) -> bytes:
    data = b""
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > LARGEST_ANSWER:
            raise of_content("application/json")
    return data


async def _drain(events: AsyncIterator[httpx2.ServerSentEvent]) -> None:
    """What follows the last piece, so that the connection can serve the next request."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass
