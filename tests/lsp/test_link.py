"""The link while there is no daemon, in the pauses between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise

import pytest

from copilotd import wire
from copilotd.lsp import link as module
from copilotd.lsp.link import Link, Request, Unreachable


class Listener:
    def __init__(self) -> None:
        self.messages: list[wire.State | wire.Notice] = []

    def greeting(self) -> Iterator[wire.FromFront]:
        yield wire.Hello("test", "editor")

    def heard(self, message: wire.State | wire.Notice) -> None:
        self.messages.append(message)

    def notices(self) -> list[str]:
        return [message.text for message in self.messages if isinstance(message, wire.Notice)]


def nothing(number: int) -> Iterator[wire.FromFront]:
    yield from ()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def test_failures_are_spaced_out_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.001, 0.002, 0.003))

    async def refuse() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        slept.append(asyncio.get_running_loop().time())
        raise Unreachable("it did not start; the log is LOG")

    async def scene() -> None:
        listener = Listener()
        link = Link(refuse, listener)
        link.start()
        await until(lambda: len(slept) > 10)
        await link.close()
        assert listener.notices() == [
            "copilotd has no daemon and goes on trying: it did not start; the log is LOG"
        ]

    asyncio.run(scene())
    gaps = [after - before for before, after in pairwise(slept)]
    assert min(gaps[4:]) >= 0.003


@pytest.mark.parametrize("error", [OSError("refused"), RuntimeError("a bug"), TimeoutError()])
def test_whatever_the_connector_raises_the_link_goes_on(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.001))
    tries = 0

    async def fail() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        nonlocal tries
        tries += 1
        raise error

    async def scene() -> None:
        link = Link(fail, Listener())
        link.start()
        await until(lambda: tries > 5)
        await link.close()

    asyncio.run(scene())


def test_a_message_over_the_limit_starts_the_connection_afresh() -> None:
    greeted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        try:
            while isinstance(wire.from_front(await wire.read_frame(reader)), wire.Hello):
                greeted += 1
        except (EOFError, ConnectionError):
            writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = Link(lambda: asyncio.open_connection("127.0.0.1", port), Listener())
        link.start()
        await until(lambda: greeted == 1)
        link.send(wire.Close("x" * (wire.MAX_FRAME + 1)))
        await until(lambda: greeted == 2)
        await link.close()
        server.close()

    asyncio.run(scene())


def attempt_that_hangs(scene: Callable[[Link], Coroutine[None, None, None]]) -> None:
    async def hang() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> None:
        link = Link(hang, Listener())
        link.start()
        await scene(link)
        await link.close()

    asyncio.run(run())


def test_a_request_waits_for_an_attempt_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_WAIT", 0.01)

    async def scene(link: Link) -> None:
        request = Request(nothing)
        link.ask(request)
        assert not request.answer.done()
        assert (await request.answer).reason == "no daemon"

    attempt_that_hangs(scene)


def test_closing_answers_what_waits() -> None:
    requests: list[Request] = []

    async def scene(link: Link) -> None:
        requests.append(Request(nothing))
        link.ask(requests[0])

    attempt_that_hangs(scene)
    assert requests[0].answer.result().outcome == "empty"


def test_while_attempts_are_spaced_out_requests_are_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAUSES", (60.0,))
    tried = asyncio.Event()

    async def refuse() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tried.set()
        raise Unreachable("no")

    async def scene() -> None:
        link = Link(refuse, Listener())
        link.start()
        await tried.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        request = Request(nothing)
        link.ask(request)
        assert request.answer.done()
        await link.close()

    asyncio.run(scene())


def test_a_daemon_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WAIT", 0.01)
    heard: list[wire.FromFront] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                heard.append(wire.from_front(await wire.read_frame(reader)))
        except EOFError:
            writer.close()

    async def scene() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = Link(lambda: asyncio.open_connection("127.0.0.1", port), Listener())
        link.start()
        await until(lambda: bool(heard))
        request = Request(nothing)
        link.ask(request)
        assert (await request.answer).reason == "no answer"
        await until(lambda: heard[-1] == wire.Cancel(1))
        await link.close()
        server.close()

    asyncio.run(scene())
