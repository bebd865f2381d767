"""Many windows typing at once, and processes killed at random.

In CI small; `COPILOTD_SOAK=1` (scripts/test --soak) runs the full size, with the figures that need a quiet
machine: longest wait, flat memory.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from copilotd import wire
from copilotd.config import SessionSettings
from tests.support.lsp_driver import LspProcess
from tests.support.scripted import ScriptedDaemon, own_folder_environment
from tests.support.wire_client import WireClient

SOAK = bool(os.environ.get("COPILOTD_SOAK"))
CLIENTS, SECONDS = (50, 60.0) if SOAK else (10, 10.0)
REQUESTS = 10_000 if SOAK else 1_000
KILLS = 200 if SOAK else 20
KEY_S = 0.1
LINE = "result = compute(values, total)\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if SOAK else 300)]


class Typist:
    """One window that types the same line for ever and asks at every key, whether or not it was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: dict[int, float] = {}
        self.outcomes: list[str] = []
        self.waits: list[float] = []
        """seconds from the first key after an answer to the next answer; what is superseded answers nothing"""
        self._since: float | None = None

    async def type(self, socket: Path, until: float) -> None:
        reader, writer = await asyncio.open_unix_connection(socket)
        hearing = asyncio.create_task(self._hear(reader))
        uri, text = f"file:///w/{self.name}.py", f"# window {self.name}\n"
        writer.write(wire.frame(wire.Hello("0", "editor")))
        writer.write(wire.frame(wire.Configure(SessionSettings(max_latency_ms=0))))
        writer.write(wire.frame(wire.Open(uri, "python", 0, text)))
        length, number = len(text), 0
        while time.monotonic() < until:
            key = LINE[number % len(LINE)]
            number += 1
            writer.write(wire.frame(wire.Change(uri, number, (wire.Splice(length, length, key),))))
            length += 1
            self.asked[number] = time.monotonic()
            self._since = self._since or self.asked[number]
            writer.write(wire.frame(wire.Complete(id=number, uri=uri, version=number, offset=length)))
            await asyncio.sleep(KEY_S)
        async with asyncio.timeout(60):
            while self.asked:
                await asyncio.sleep(0.05)
        hearing.cancel()
        writer.close()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while True:
            message = wire.from_daemon(await wire.read_frame(reader))
            if isinstance(message, wire.Answer):
                del self.asked[message.id]  # KeyError: answered twice
                self.outcomes.append(message.outcome)
                if message.outcome in ("answered", "empty") and self._since is not None:
                    self.waits.append(time.monotonic() - self._since)
                    self._since = None


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def held(pid: int) -> tuple[int, int]:
    """Open files and threads."""
    process = Path(f"/proc/{pid}")
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))


async def watch_memory(pid: int, until: float) -> list[float]:
    seen = []
    while time.monotonic() < until:
        seen.append(memory_mb(pid))
        await asyncio.sleep(0.5)
    return seen


def type_in_all_windows(socket: Path, pid: int) -> tuple[list[Typist], list[float]]:
    """All at once; the typists, and the daemon's megabytes every half second."""
    typists = [Typist(f"{number}") for number in range(CLIENTS)]
    until = time.monotonic() + SECONDS

    async def all_type() -> list[float]:
        work = [typist.type(socket, until) for typist in typists]
        memory, *_ = await asyncio.gather(watch_memory(pid, until), *work)
        return memory

    return typists, asyncio.run(all_type())


def nobody_starves(typists: list[Typist], memory: list[float]) -> None:
    """Every request has its one answer, none an error, and nobody gets much fewer than the others."""
    assert not any(typist.asked for typist in typists)
    assert {o for t in typists for o in t.outcomes} <= {"answered", "empty", "superseded"}
    answered = [len(typist.waits) for typist in typists]
    assert min(answered) > 0
    assert min(answered) >= statistics.median(answered) / 5
    if SOAK:
        waits = [wait for typist in typists for wait in typist.waits]
        longest = [max(typist.waits) for typist in typists]
        half = memory[len(memory) // 2 :]
        print(
            f"{len(typists)} windows: {min(answered)} to {max(answered)} answers each; waits: median "
            f"{statistics.median(waits):.3f} s, longest {max(waits):.3f} s, of the windows' longest the median "
            f"{statistics.median(longest):.3f} s; {min(half):.0f} to {max(half):.0f} MB"
        )
        assert max(waits) <= 5 * statistics.median(waits)
        assert max(half) <= 1.05 * min(half)


def test_many_windows_typing_at_once(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path, rules={"window": "x = 1"}, delay_per_token_ms=1) as daemon:
        with daemon.client() as client:
            client.hello()
            client.ready()
        nobody_starves(*type_in_all_windows(daemon.socket, daemon.pid))


def test_many_windows_typing_at_the_embedded_pair(tmp_path: Path) -> None:
    """What writes is real: prompts are prefilled, caches come and go, steps take their time."""
    env = own_folder_environment(tmp_path) | {"COPILOTD_MODEL": "embedded"}
    command = [sys.executable, "-P", "-m", "copilotd", "serve"]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as daemon:
        try:
            assert daemon.stdout is not None
            socket = Path(daemon.stdout.readline().removeprefix("ready ").rstrip("\n"))
            with WireClient(socket) as client:
                client.hello()
                client.ready()
            nobody_starves(*type_in_all_windows(socket, daemon.pid))
        finally:
            daemon.terminate()


def test_requests_leave_nothing_behind(tmp_path: Path) -> None:
    uri = "file:///w/a.py"
    with ScriptedDaemon(tmp_path, script="total") as daemon, daemon.client() as client:
        client.hello()
        client.ready()
        client.send(wire.Open(uri, "python", 0, ""))

        def type_keys(first: int, last: int) -> None:
            for version in range(first, last):
                client.send(wire.Change(uri, version, (wire.Splice(0, 0, LINE[version % len(LINE)]),)))
                client.complete(uri, version, 1)

        type_keys(1, REQUESTS // 2)
        before, memory = held(daemon.pid), memory_mb(daemon.pid)
        type_keys(REQUESTS // 2, REQUESTS)
        # fewer: what starting opened was still open at half-time
        assert all(now <= then for now, then in zip(held(daemon.pid), before, strict=True))
        assert memory_mb(daemon.pid) < 1.05 * memory + 2


def test_processes_killed_at_random(tmp_path: Path) -> None:
    """Two windows type while their fronts and their daemon are killed: no mixed or lost text, no orphan."""
    chance = random.Random(4)
    settings = "[session]\nmax_latency_ms = 0\n"
    problems: list[str] = []
    rounds = {"A": 0, "B": 0}
    over = threading.Event()

    def window(name: str) -> None:
        """A person at an editor whose front may die: the editor starts it again and opens what it has."""
        typed = 0
        while not over.is_set():
            with LspProcess(daemon.env) as editor:
                fronts[name] = editor
                try:
                    editor.initialize()
                    text = f"# window {name}\n# typed {typed}\n"
                    editor.open(uri, text)
                    while not over.is_set():
                        typed += 1
                        editor.change(uri, typed + 1, f"# window {name}\n# typed {typed}\nval")
                        editor.complete(uri, (2, 3))
                        rounds[name] += 1
                except (AssertionError, OSError) as error:
                    if editor not in killed:
                        problems.append(f"{name}: {error!r}")
                        return

    uri = "file:///w/shared.py"
    fronts: dict[str, LspProcess] = {}
    killed: list[LspProcess] = []
    with ScriptedDaemon(
        tmp_path, settings=settings, rules={"window A": "a", "window B": "b"}, delay_per_token_ms=2
    ) as daemon:
        threads = [threading.Thread(target=window, args=(name,)) for name in rounds]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            over.wait(chance.uniform(0.05, 0.6))
            name = chance.choice(["A", "B", "daemon"])
            if name == "daemon":
                daemon.restart()
            elif name in fronts:
                killed.append(fronts[name])
                fronts[name].process.kill()
        before = dict(rounds)
        deadline = time.monotonic() + 60
        while any(rounds[name] < before[name] + 3 for name in rounds) and not problems:
            assert time.monotonic() < deadline, "a window hangs"
            time.sleep(0.05)
        over.set()
        for thread in threads:
            thread.join(60)
        assert problems == []
        last = {"A": 0, "B": 0}
        for prompt in daemon.prompts():
            names = set(re.findall(r"# window (\w)", prompt))
            assert len(names) == 1, "text of two windows in one prompt"
            name = names.pop()
            typed = max(int(number) for number in re.findall(r"# typed (\d+)", prompt))
            assert typed >= last[name] - 1, "an older text came back"
            last[name] = max(last[name], typed)
        assert all(number > 0 for number in last.values())
        assert daemon.living() == [daemon.pid]
