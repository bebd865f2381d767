"""Requests over the real socket: newest wins, one answer each, sessions apart (H16, H19, H26)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from copilotd import wire
from copilotd.config import SessionSettings
from tests.support.scripted import ScriptedDaemon
from tests.support.wire_client import WireClient

URI = "file:///w/shared.py"
SLOW = {"script": "x" * 100, "delay_per_token_ms": 300, "plain": True}
"""a generation that ends only when it is told to, or by the request's own deadline"""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    with ScriptedDaemon(tmp_path, **SLOW) as daemon:
        yield daemon


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    with ScriptedDaemon(tmp_path, script="total", plain=True) as daemon:
        yield daemon


def begin(client: WireClient, text: str = "abc\n", **settings: object) -> None:
    client.hello()
    client.ready()
    client.send(
        wire.Configure(SessionSettings(**settings)),  # type: ignore[arg-type]
        wire.Open(URI, "python", 1, text),
    )


def status(daemon: ScriptedDaemon) -> dict[str, object]:
    line = [sys.executable, "-P", "-m", "copilotd", "status", "--json"]
    done = subprocess.run(line, env=daemon.env, capture_output=True, check=True, timeout=60)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def until_status(daemon: ScriptedDaemon, key: str, value: object) -> None:
    end = time.monotonic() + 30
    while (found := status(daemon))[key] != value:
        assert time.monotonic() < end, found
        time.sleep(0.05)


def until_started(daemon: ScriptedDaemon, number: int) -> None:
    end = time.monotonic() + 30
    while daemon.starts() < number:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("inside_a_generation", [False, True])
def test_a_storm_of_300_of_which_299_are_cancelled(tmp_path: Path, inside_a_generation: bool) -> None:
    with (
        ScriptedDaemon(tmp_path, script="ok", delay_per_token_ms=30, plain=True) as daemon,
        daemon.client() as client,
    ):
        begin(client)
        before = 0
        if inside_a_generation:
            client.ask(URI, 1, 2)
            until_started(daemon, 1)
            before = 1
        for number in range(1000, 1300):
            client.send(wire.Complete(id=number, uri=URI, version=1, offset=2))
            if number < 1299:
                client.send(wire.Cancel(number))
        assert client.answer(1299).items[0].text == "ok"
        answers = [m.id for m in client.seen if isinstance(m, wire.Answer) and m.id >= 1000]
        assert sorted(answers) == list(range(1000, 1300))
        assert daemon.starts() - before <= 3


def test_the_storm_of_h16(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(tmp_path, script="k", delay_per_token_ms=300, plain=True) as daemon,
        daemon.client() as client,
    ):
        begin(client)
        for number in range(10, 40):
            client.send(wire.Complete(id=number, uri=URI, version=1, offset=2), wire.Cancel(number))
        client.send(wire.Complete(id=99, uri=URI, version=1, offset=2))
        client.send(wire.Cancel(12345), wire.Cancel(10))
        assert client.answer(99).outcome == "answered"
        outcomes = [m.outcome for m in client.seen if isinstance(m, wire.Answer) and m.id < 40]
        assert outcomes == ["cancelled"] * 30
        assert daemon.starts() <= 3
        assert client.complete(URI, 1, 2).outcome == "answered"


def test_a_newer_request_ends_the_older_one_at_once(slow: ScriptedDaemon) -> None:
    with slow.client() as client:
        begin(client, max_latency_ms=0)
        first = client.ask(URI, 1, 1)
        until_started(slow, 1)
        second = client.ask(URI, 1, 2)
        assert client.answer(first).outcome == "superseded"
        until_started(slow, 2)
        client.send(wire.Cancel(second))
        assert client.answer(second).outcome == "cancelled"
        end = time.monotonic() + 30
        while len(slow.records("end")) < 2:
            assert time.monotonic() < end
            time.sleep(0.005)
        ends = slow.records("end")
        assert [e["finish"] for e in ends] == ["cancelled", "cancelled"]
        starts = slow.records("start")
        assert ends[0]["t"] <= starts[1]["t"]  # one engine thread: never two at once


def test_what_is_there_at_the_deadline_is_answered(slow: ScriptedDaemon) -> None:
    with slow.client() as client:
        begin(client, max_latency_ms=700)
        answer = client.complete(URI, 1, 2)
        assert answer.outcome == "answered"
        assert 1 <= len(answer.items[0].text) <= 20


def test_clients_take_turns(tmp_path: Path) -> None:
    """Eight windows ask at once and again and again: nobody waits for a second turn of another."""
    with ExitStack() as stack:
        daemon = stack.enter_context(ScriptedDaemon(tmp_path, script="ok", delay_per_token_ms=5, plain=True))
        clients = [stack.enter_context(daemon.client()) for _ in range(8)]
        for number, client in enumerate(clients):
            begin(client, text=f"client {number}")
        for _ in range(3):
            asked = [client.ask(URI, 1, 8) for client in clients]
            answers = [client.answer(number) for client, number in zip(clients, asked, strict=True)]
            assert [answer.outcome for answer in answers] == ["answered"] * 8
        order = [prompt.split("client ")[1][0] for prompt in daemon.prompts()]
        for turn in range(3):
            assert sorted(order[8 * turn : 8 * turn + 8]) == [str(n) for n in range(8)]


@pytest.mark.parametrize("leaves", ["closes", "killed"])
def test_two_editors_with_different_text_of_one_file(tmp_path: Path, leaves: str) -> None:
    """H26: A and B never mix, ids may be equal, and A's end touches nobody."""

    def text(name: str) -> str:
        return f'who = "client {name}"\nprint(wh)\n'

    offset = len('who = "client A"\nprint(wh')
    rules = {"client A": "a", "client B": "b", "client C": "c"}
    with ExitStack() as stack:
        daemon = stack.enter_context(
            ScriptedDaemon(tmp_path, rules=rules, delay_per_token_ms=200, plain=True)
        )
        b = stack.enter_context(daemon.client())
        begin(b, text("B"))
        if leaves == "killed":
            line = [sys.executable, "-c", CLIENT_A, str(daemon.socket)]
            with subprocess.Popen(
                line, env=daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == b"asked\n"
                until_started(daemon, 1)
                holder.kill()
        else:
            a = stack.enter_context(daemon.client())
            begin(a, text("A"))
            for client in (a, b):
                client.send(wire.Complete(id=5, uri=URI, version=1, offset=offset))
            assert a.answer(5).items[0].text == "a"
            assert b.answer(5).items[0].text == "b"
            a.send(wire.Close(URI))
            assert b.complete(URI, 1, offset).items[0].text == "b"
            a.close()
        until_status(daemon, "clients", 1)
        assert b.complete(URI, 1, offset).items[0].text == "b"
        with daemon.client() as c:
            begin(c, text("C"))
            assert c.complete(URI, 1, offset).items[0].text == "c"
        assert status(daemon)["pid"] == daemon.pid
        assert len(daemon.records("load")) == 1
        for prompt in daemon.prompts():
            assert sum(f"client {name}" in prompt for name in "ABC") == 1


CLIENT_A = """
import sys
from pathlib import Path
from copilotd import wire
from tests.support.wire_client import WireClient
client = WireClient(Path(sys.argv[1]))
client.hello()
client.ready()
text = 'who = "client A"\\nprint(wh)\\n'
client.send(wire.Open("file:///w/shared.py", "python", 1, text))
client.send(wire.Complete(id=5, uri="file:///w/shared.py", version=1, offset=25))
print("asked", flush=True)
sys.stdin.read()
"""


def test_a_front_that_goes_takes_its_session_and_its_generation_along(slow: ScriptedDaemon) -> None:
    """H19, the daemon's side."""
    with slow.client() as client:
        begin(client, max_latency_ms=0)
        client.ask(URI, 1, 2)
        until_started(slow, 1)
        assert (status(slow)["clients"], status(slow)["documents"]) == (1, 1)
    until_status(slow, "clients", 0)
    assert status(slow)["documents"] == 0
    end = time.monotonic() + 30
    while not slow.records("end"):
        assert time.monotonic() < end
        time.sleep(0.005)
    assert slow.records("end")[0]["finish"] == "cancelled"


def test_a_request_for_an_older_text_is_never_answered_with_it(quick: ScriptedDaemon) -> None:
    with quick.client() as client:
        begin(client)
        client.send(wire.Change(URI, 2, (wire.Splice(0, 1, "xyz"),)))
        assert client.complete(URI, 1, 2).reason == "stale"
        assert client.complete(URI, 2, 2).outcome == "answered"
        assert quick.prompts() == ["<|fim_prefix|>xy<|fim_suffix|>zbc\n<|fim_middle|>"]


def test_counts_and_explanation(quick: ScriptedDaemon) -> None:
    with quick.client() as client:
        begin(client)
        plain = client.complete(URI, 1, 2)
        assert plain.explanation is None
        explained = client.complete(URI, 1, 2, explain=True)
        assert explained.explanation is not None
        assert client.complete("file:///other", 1, 0).reason == "unopened"
        client.send(wire.Accepted(explained.items[0].id), wire.Pause(True))
        assert client.expect(wire.State, lambda s: s.state == "paused")
        assert client.complete(URI, 1, 2).reason == "paused"
        client.send(wire.Pause(False))
        client.ready()
        requests = status(quick)["requests"]
    assert requests == {
        "answered": 2,
        "empty": {"unopened": 1, "paused": 1},
        "cancelled": 0,
        "typed_through": 0,
        "joined": 0,
        "accepted": 1,
    }


def settled(look: Callable[[], tuple[int, int]], seconds: float = 0.5) -> tuple[int, int]:
    """What stays the same for a while: a connection that was closed holds its file a moment longer."""
    end = time.monotonic() + 20
    seen, since = look(), time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end, "nothing settles"
        time.sleep(0.05)
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
    return seen


def test_a_thousand_requests_leave_nothing_behind(quick: ScriptedDaemon) -> None:
    def held() -> tuple[int, int]:
        process = Path(f"/proc/{quick.pid}")
        return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))

    def memory_mb() -> float:
        line = next(x for x in Path(f"/proc/{quick.pid}/status").read_text().splitlines() if "VmRSS" in x)
        return int(line.split()[1]) / 1024

    with quick.client() as client:
        begin(client, text="x" * 1000)
        for _ in range(200):
            assert client.complete(URI, 1, 2).outcome == "answered"
        before, memory = held(), memory_mb()
        for _ in range(1000):
            assert client.complete(URI, 1, 2).outcome == "answered"
        for _ in range(50):
            with quick.client() as other:
                other.hello()
                other.send(wire.Open(URI, "python", 1, "y" * 100_000))
        assert client.complete(URI, 1, 2).outcome == "answered"
        until_status(quick, "clients", 1)
        assert settled(held) == before
        assert memory_mb() < memory + 10


def test_a_daemon_that_leaves_on_purpose_says_so(quick: ScriptedDaemon) -> None:
    with quick.client() as client:
        begin(client)
        quick.terminate()
        client.expect(wire.Done)
        assert client.closed()
