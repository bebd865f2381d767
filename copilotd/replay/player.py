"""Plays a trace against the real program and records what an editor's user would have seen."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from copilotd.replay.editor import Editor, Ghost, Reply
from copilotd.replay.trace import Event, Position, Trace

COLD_JUMP_LINES = 50


class Keystroke(Struct):
    """A change on screen (or a jump that asked without one), and when a ghost valid for the screen came."""

    at_ms: float
    truth: str | None = None
    cold: bool = False
    ghost_ms: float | None = None
    """from this keystroke; None: none came before the trace ended or the document was closed"""
    right: bool = False
    """that ghost's first line is what the author wrote next"""
    next_ms: float | None = None
    """when the next keystroke came, on the clock of `at_ms`"""


class Request(Struct):
    truth: str | None
    outcome: str
    ms: float
    stale: bool
    text: str | None
    """what would be inserted at the cursor"""


class Observations(Struct):
    """All that one playing of a trace showed."""

    name: str
    keystrokes: list[Keystroke] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    status_before: dict[str, object] = field(default_factory=dict)
    status_after: dict[str, object] = field(default_factory=dict)
    front_pss_mb: float = 0.0
    daemon_rss_mb: float = 0.0


class Player:
    """One playing of one trace in `folder`, which it fills with the trace's files."""

    def __init__(
        self,
        trace: Trace,
        folder: Path,
        speed: Literal["recorded", "max"],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._trace = trace
        self._folder = folder
        self._recorded = speed == "recorded"
        self._tick = tick
        self._seen = Observations(trace.name)
        self._waiting: list[Keystroke] = []
        self._replies: list[asyncio.Task[None]] = []
        self._in_flight: int | None = None
        self._ghost: Ghost | None = None
        self._last_line: dict[str, int] = {}

    async def play(self) -> Observations:
        for path, text in self._trace.files.items():
            _write(self._folder / path, text)
        async with Editor(self._folder, self._trace.settings) as editor:
            await asyncio.wait_for(editor.ready.wait(), 300)
            self._seen.status_before = await _status()
            self._start = time.perf_counter()
            for event in self._trace.events:
                if self._recorded:
                    await asyncio.sleep(max(0.0, event.t / 1000 - (time.perf_counter() - self._start)))
                await self._happen(editor, event)
                self._tick()
            await asyncio.gather(*self._replies)
            self._seen.status_after = await _status()
            self._seen.front_pss_mb = _memory_mb(editor.pid, "smaps_rollup", "Pss:")
            daemon = self._seen.status_after.get("pid")
            if isinstance(daemon, int):
                self._seen.daemon_rss_mb = _memory_mb(daemon, "status", "VmRSS:")
        return self._seen

    async def _happen(self, editor: Editor, event: Event) -> None:
        if event.open is not None:
            editor.open(event.open, self._trace.files.get(event.open, ""))
            self._last_line.pop(event.open, None)
        elif event.change is not None:
            editor.change(event.change, *event.edits)
            self._keystroke()
        elif event.complete is not None and event.at is not None:
            await self._complete(editor, event.complete, event.at, event)
        elif event.cancel and self._in_flight is not None:
            editor.cancel(self._in_flight)
        elif event.accept and self._ghost is not None:
            editor.change(self._ghost.path, self._ghost.edit)
            self._ghost = None
        elif event.save is not None:
            editor.save(event.save)
        elif event.close is not None:
            editor.close(event.close)
            self._waiting.clear()
        elif event.disk is not None:
            if event.text is None:
                (self._folder / event.disk).unlink(missing_ok=True)
            else:
                _write(self._folder / event.disk, event.text)

    def _now(self) -> float:
        return (time.perf_counter() - self._start) * 1000

    def _keystroke(self) -> None:
        now = self._now()
        if self._seen.keystrokes:
            self._seen.keystrokes[-1].next_ms = now
        keystroke = Keystroke(now)
        self._seen.keystrokes.append(keystroke)
        self._waiting.append(keystroke)

    async def _complete(self, editor: Editor, path: str, at: Position, event: Event) -> None:
        last = self._last_line.get(path)
        cold = last is None or abs(at[0] - last) > COLD_JUMP_LINES
        self._last_line[path] = at[0]
        if not self._waiting:  # asked without a change: a jump, or again at the same place
            self._keystroke()
        newest = self._waiting[-1]
        newest.truth, newest.cold = event.truth, cold
        self._in_flight, reply = editor.complete(path, at, invoked=event.trigger == "invoked")
        task = asyncio.create_task(self._record(reply, event.truth))
        self._replies.append(task)
        if not self._recorded:
            await task

    async def _record(self, pending: asyncio.Task[Reply], truth: str | None) -> None:
        reply = await pending
        ghost = reply.ghost
        text = None if ghost is None else ghost.text
        self._seen.requests.append(Request(truth, reply.outcome, reply.ms, reply.stale, text))
        if ghost is not None and not reply.stale:
            self._ghost = ghost
            now = self._now()
            for keystroke in self._waiting:
                keystroke.ghost_ms = now - keystroke.at_ms
                keystroke.right = truth is not None and ghost.text.split("\n")[0] == truth.split("\n")[0]
            self._waiting.clear()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


async def _status() -> dict[str, object]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "copilotd",
        "status",
        "--json",
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    out, _ = await process.communicate()
    status: dict[str, object] = json.loads(out)
    return status


def _memory_mb(pid: int, file: str, key: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(key)), 0.0)
