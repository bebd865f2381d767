"""Recorded sessions, played at their own pace to every contender, and jumps into cold files."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from copilotd.cli.bench import standard_library
from copilotd.config import SessionSettings
from copilotd.replay.buffer import Buffer
from copilotd.replay.editor import Editor, Reply
from copilotd.replay.trace import Edit, Position, Trace
from peers.llama import Server, peak_mb
from peers.prompts import window
from peers.screen import Screen, Stroke
from peers.vim import TOKENS, Infill, LlamaVim
from peers.weights import Weights

CONTEXT = 2048
COLD_WAIT_S = 30.0
SHINGLE = 12
"""characters of a piece of text that is looked for elsewhere in the file"""


class Assistant(Protocol):
    def open(self, path: str, text: str) -> None: ...
    def change(self, path: str, edits: Sequence[Edit]) -> None: ...
    def close(self, path: str) -> None: ...
    def complete(self, path: str, at: Position, text: str, cursor: int, stroke: Stroke) -> None: ...
    async def settle(self) -> None: ...


class Session(Struct):
    """One contender's playing of one trace, or of the cold files."""

    contender: str
    name: str
    strokes: list[Stroke] = field(default_factory=list)
    rss_mb: float = 0.0

    @property
    def lines_ms(self) -> list[float]:
        """to the first complete line, over the answers the model had to be asked for"""
        return [s.ms for s in self.strokes if s.asked and not s.typed_through and s.ms is not None]

    @property
    def ghosts_ms(self) -> list[float]:
        """from every stroke until something fits"""
        return [s.ms for s in self.strokes if s.ms is not None]


class Contender(Struct, frozen=True):
    """Starts afresh for every session, so that nobody remembers the last one."""

    name: str
    begin: Callable[[Path, Screen], AbstractAsyncContextManager[Assistant]]
    rss_mb: Callable[[], float]


class Copilotd:
    """The real `copilotd --stdio`, as an editor drives it."""

    def __init__(self, editor: Editor, screen: Screen) -> None:
        self._editor = editor
        self._screen = screen
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, path: str, text: str) -> None:
        self._editor.open(path, text)

    def change(self, path: str, edits: Sequence[Edit]) -> None:
        self._editor.change(path, *edits)

    def close(self, path: str) -> None:
        self._editor.close(path)

    def complete(self, path: str, at: Position, text: str, cursor: int, stroke: Stroke) -> None:
        _, reply = self._editor.complete(path, at)
        task = asyncio.create_task(self._answered(reply, at, text, cursor, stroke))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _answered(
        self, pending: asyncio.Task[Reply], at: Position, text: str, cursor: int, stroke: Stroke
    ) -> None:
        ghost = (await pending).ghost
        if ghost is not None and ghost.range[0] == at:
            self._screen.show(text[:cursor], text[cursor:], ghost.text, stroke, time.perf_counter())


class Daemon:
    """A daemon of our own, with its own home, beside whatever else runs."""

    def __init__(self, weights: Weights, home: Path, changes: dict[str, str]) -> None:
        self.environment = os.environ | {
            "COPILOTD_HOME": str(home),
            "COPILOTD_MODEL": str(weights.target),
            "COPILOTD_DRAFT": str(weights.draft or "none"),
            "COPILOTD_CONTEXT_TOKENS": str(CONTEXT),
            **changes,
        }
        self.rss = 0.0

    @asynccontextmanager
    async def begin(self, folder: Path, screen: Screen) -> AsyncIterator[Assistant]:
        async with Editor(folder, SessionSettings(), self.environment) as editor:
            await asyncio.wait_for(editor.ready.wait(), 600)
            assistant = Copilotd(editor, screen)
            yield assistant
            await assistant.settle()
            status = json.loads(self._command("status", "--json"))
            if isinstance(status.get("pid"), int):
                self.rss = peak_mb(status["pid"])

    def stop(self) -> None:
        self._command("stop")

    def _command(self, *words: str) -> bytes:
        command = [sys.executable, "-P", "-m", "copilotd", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).stdout


def llama_server(weights: Weights, kind: str, threads: int) -> Server:
    """With windows of the size that copilotd's prompt has: /infill gives 3/4 of a batch to the prefix."""
    return Server(weights.gguf("target", kind), threads, CONTEXT + 512, window(CONTEXT, TOKENS))


def llama_vim(name: str, infill: Infill, rss_mb: Callable[[], float]) -> Contender:
    @asynccontextmanager
    async def begin(folder: Path, screen: Screen) -> AsyncIterator[Assistant]:
        yield LlamaVim(infill, screen)

    return Contender(f"{name}, llama.vim's rules", begin, rss_mb)


def copilotd(daemon: Daemon) -> Contender:
    return Contender("copilotd", daemon.begin, lambda: daemon.rss)


async def play(contender: Contender, trace: Trace, seconds: float) -> Session:
    """The first `seconds` of a trace at its own pace."""
    screen = Screen()
    session = Session(contender.name, trace.name, screen.strokes)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        for path, text in trace.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text.encode())
        async with contender.begin(folder, screen) as assistant:
            await _typed(trace, assistant, screen, seconds)
            await assistant.settle()
    session.rss_mb = contender.rss_mb()
    return session


async def _typed(trace: Trace, assistant: Assistant, screen: Screen, seconds: float) -> None:
    buffers: dict[str, Buffer] = {}
    started = time.perf_counter()
    for event in trace.events:
        if event.t > seconds * 1000:
            return
        await asyncio.sleep(max(0.0, event.t / 1000 - (time.perf_counter() - started)))
        if event.open is not None:
            screen.clear()
            buffers[event.open] = Buffer(trace.files.get(event.open, ""))
            assistant.open(event.open, buffers[event.open].text)
        elif event.change is not None:
            buffers[event.change].apply(event.edits)
            assistant.change(event.change, event.edits)
        elif event.complete is not None and event.at is not None:
            buffer = buffers[event.complete]
            cursor = buffer.offset(event.at)
            stroke = screen.moved(buffer.text, cursor)
            assistant.complete(event.complete, event.at, buffer.text, cursor, stroke)
        elif event.close is not None:
            screen.clear()
            assistant.close(event.close)


async def cold(contender: Contender, count: int) -> Session:
    """Files of Python's own, each opened and asked about in its middle at once."""
    screen = Screen()
    session = Session(contender.name, "cold files", screen.strokes)
    files = [file for file in standard_library() if file.stat().st_size > 20_000][:count]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        async with contender.begin(folder, screen) as assistant:
            for file in files:
                buffer = Buffer(file.read_text("utf-8", "replace"))
                (folder / file.name).write_text(buffer.text, "utf-8")
                screen.clear()
                assistant.open(file.name, buffer.text)
                cursor = _end_of_a_line(buffer.text, len(buffer.text) // 2)
                stroke = screen.moved(buffer.text, cursor)
                assistant.complete(file.name, buffer.position(cursor), buffer.text, cursor, stroke)
                deadline = time.perf_counter() + COLD_WAIT_S
                while stroke.ms is None and time.perf_counter() < deadline:
                    await asyncio.sleep(0.002)
                await assistant.settle()
                assistant.close(file.name)
    session.rss_mb = contender.rss_mb()
    return session


def _end_of_a_line(text: str, near: int) -> int:
    """The end of a line of code that goes on below: there is something to write."""
    while True:
        end = text.index("\n", near)
        if text[text.rfind("\n", 0, end) + 1 : end].rstrip().endswith((":", "(", ",", "=")):
            return end
        near = end + 1


def copied_share(trace: Trace) -> float:
    """How much of what the trace writes stood in its files already, by pieces of some characters."""
    buffers = {path: Buffer(text) for path, text in trace.files.items()}
    for event in trace.events:
        if event.change is not None:
            buffers[event.change].apply(event.edits)
    old = {piece for text in trace.files.values() for piece in _pieces(text)}
    new: list[str] = []
    for path, text in trace.files.items():
        lines, written = text.splitlines(), buffers[path].text.splitlines()
        matcher = difflib.SequenceMatcher(a=lines, b=written, autojunk=False)
        for tag, _, _, low, high in matcher.get_opcodes():
            if tag != "equal":
                new += _pieces("\n".join(written[low:high]))
    return sum(piece in old for piece in new) / len(new) if new else 0.0


def _pieces(text: str) -> list[str]:
    squeezed = " ".join(text.split())
    return [squeezed[at : at + SHINGLE] for at in range(len(squeezed) - SHINGLE + 1)]


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
