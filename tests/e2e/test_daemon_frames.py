"""Whatever arrives on the socket, the connection may end, the daemon goes on."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from copilotd import wire
from tests.support.scripted import ScriptedDaemon
from tests.support.wire_client import WireClient

URI = "file:///w/a.py"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedDaemon]:
    with ScriptedDaemon(tmp_path_factory.mktemp("home"), script="ok", plain=True) as started:
        yield started
        with started.client() as client:
            client.hello()
            client.ready()
            client.send(wire.Open(URI, "python", 1, "abc"))
            assert client.complete(URI, 1, 2).items[0].text == "ok"
        assert started.process is not None
        assert started.process.poll() is None


def packed(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


HELLO = wire.frame(wire.Hello("0.1.0", "editor"))
OPEN = wire.frame(wire.Open(URI, "python", 1, "abc"))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"Content-Length: 2\r\n\r\n{}",
        b"\xff" * 100,
        struct.pack(">I", wire.MAX_FRAME + 1),
        struct.pack(">I", 2**32 - 1) + b"x" * 1000,
        struct.pack(">I", 0),
        packed([1, 2, 3]),
        packed({"type": "no such message"}),
        packed({"type": "hello", "version": 7, "role": "editor"}),
        packed({"type": "hello", "version": "1", "role": "root"}),
        OPEN,
        HELLO + HELLO,
        HELLO + packed({"type": "complete", "id": "one", "uri": URI, "version": 1, "offset": 0}),
        HELLO + OPEN + wire.frame(wire.Change(URI, 2, (wire.Splice(2, 99, "x"),))),
        HELLO + wire.frame(wire.Change(URI, 2, ())),
        wire.frame(wire.Hello("0.1.0", "control")) + OPEN,
    ],
)
def test_what_is_no_message_of_ours_ends_the_connection(daemon: ScriptedDaemon, data: bytes) -> None:
    with daemon.client() as client:
        client.send_bytes(data)
        assert client.closed()


def test_half_a_frame_and_gone(daemon: ScriptedDaemon) -> None:
    for cut in range(1, len(HELLO), 5):
        with daemon.client() as client:
            client.send_bytes(HELLO[:cut])


def test_random_bytes(daemon: ScriptedDaemon) -> None:
    randomness = random.Random(4)
    for _ in range(100):
        with daemon.client() as client, suppress(BrokenPipeError, ConnectionResetError):
            client.send_bytes(HELLO + randomness.randbytes(randomness.randrange(1, 300)))


def test_two_requests_with_one_id(daemon: ScriptedDaemon) -> None:
    with daemon.client() as client:
        client.send_bytes(HELLO + OPEN)
        asked = wire.frame(wire.Complete(id=1, uri=URI, version=1, offset=1))
        client.send_bytes(asked + asked)
        assert client.closed() or client.seen


def test_a_large_document_passes(daemon: ScriptedDaemon) -> None:
    with daemon.client() as client:
        client.hello()
        client.ready()
        client.send(wire.Open(URI, "python", 1, "x" * 5_000_000))
        client.send(wire.Change(URI, 2, (wire.Splice(0, 5_000_000, "abc"),)))
        assert client.complete(URI, 2, 2).outcome == "answered"


def test_a_frame_over_the_limit_is_never_sent() -> None:
    with pytest.raises(wire.FrameError):
        wire.frame(wire.Open(URI, "python", 1, "x" * (wire.MAX_FRAME + 1)))


def test_a_front_that_never_reads_is_let_go(tmp_path: Path) -> None:
    """It asks and asks and reads no answer: our memory is not its mailbox."""
    flood = wire.frame(wire.Control("status")) * 200

    def deafly() -> None:
        for _ in range(2_000):
            deaf.send_bytes(flood)

    with ScriptedDaemon(tmp_path, script="ok", plain=True) as started, started.client() as deaf:
        deaf.hello()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            deafly()
        with started.client() as client:
            client.hello()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away_whatever_the_modes_say(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path, plain=True) as started:
        started.socket.parent.chmod(0o711)
        started.socket.chmod(0o666)
        child = os.fork()
        if child == 0:
            os.chdir(started.socket.parent)
            os.setuid(12345)
            try:
                with WireClient(Path(started.socket.name)) as client:
                    client.send_bytes(HELLO)
                    client.closed()
                    os._exit(len(client.seen))
            except ConnectionError:  # turned away before it could speak
                os._exit(0)
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "another user" in next((tmp_path / "state").glob("*.log")).read_text()
