"""Plays a trace against the real program and records what an editor's user would have seen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from copilotd.replay.counts import Counts, Read, Reading
from copilotd.replay.editor import Editor, Ghost, Reply
from copilotd.replay.rules import Rules, typed
from copilotd.replay.trace import Event, Position, Trace

COLD_JUMP_LINES = 50
SAMPLE_S = 1.0
"""how often the daemon is asked for its counts"""


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
    along: bool = False
    """what was left of the ghost shown before, whose beginning had been typed"""
    counted: Counts | None = None
    """what the daemon did for it; known where nothing else is asked meanwhile (speed max)"""


class Sample(Struct):
    at_ms: float
    counts: Counts
    """since the trace began"""


class Observations(Struct):
    """All that one playing of a trace showed."""

    name: str
    model: str = ""
    keystrokes: list[Keystroke] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    """about one a second; the last one at the end"""
    messages: list[str] = field(default_factory=list)
    """what the person was shown"""
    front_pss_mb: float = 0.0
    daemon_rss_mb: float = 0.0

    @property
    def counts(self) -> Counts:
        """What the daemon did meanwhile."""
        return self.samples[-1].counts if self.samples else Counts()


class Player:
    """One playing of one trace in `folder`, which it fills with the trace's files.

    `read` asks the daemon for its counts. With `rules` the requests are not the trace's but those that an
    editor with these rules sends for its changes; that takes the recorded pace.
    """

    def __init__(
        self,
        trace: Trace,
        folder: Path,
        speed: Literal["recorded", "max"],
        read: Read,
        *,
        rules: Rules | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        if rules and speed == "max":
            raise ValueError("an editor's debounce takes the recorded pace")
        self._trace = trace
        self._folder = folder
        self._recorded = speed == "recorded"
        self._read = read
        self._rules = rules
        self._tick = tick
        self._seen = Observations(trace.name)
        self._waiting: list[Keystroke] = []
        self._replies: list[asyncio.Task[None]] = []
        self._in_flight: int | None = None
        self._cancelled: set[int] = set()
        self._debounce: asyncio.Task[None] | None = None
        self._told: Event | None = None
        """the trace's request that belongs to the last change"""
        self._ghost: Ghost | None = None
        self._left = ""
        """what of the ghost has not been typed yet"""
        self._last_line: dict[str, int] = {}
        self._reading = Reading(0, "", Counts())
        self._first = Counts()

    async def play(self) -> Observations:
        for path, text in self._trace.files.items():
            _write(self._folder / path, text)
        async with Editor(self._folder, self._trace.settings) as editor:
            await asyncio.wait_for(editor.ready.wait(), 300)
            self._reading = await self._read()
            self._first = self._reading.counts
            self._seen.model = self._reading.model
            self._start = time.perf_counter()
            sampling = asyncio.create_task(self._sample())
            await self._events(editor)
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling
            await self._count()
            self._seen.messages = editor.messages
            self._seen.front_pss_mb = _memory_mb(editor.pid, "smaps_rollup", "Pss:")
            self._seen.daemon_rss_mb = _memory_mb(self._reading.pid, "status", "VmRSS:")
        return self._seen

    async def _events(self, editor: Editor) -> None:
        events = self._trace.events
        for event, following in zip(events, (*events[1:], None), strict=True):
            if self._recorded:
                await asyncio.sleep(max(0.0, event.t / 1000 - (time.perf_counter() - self._start)))
            await self._happen(editor, event, following)
            self._tick()
        if self._debounce:
            await self._debounce
        await asyncio.gather(*self._replies)

    async def _happen(self, editor: Editor, event: Event, following: Event | None) -> None:
        if event.open is not None:
            editor.open(event.open, _read_text(self._folder / event.open))
            self._last_line.pop(event.open, None)
        elif event.change is not None:
            self._change(editor, event, following)
        elif event.complete is not None and event.at is not None:
            await self._asked(editor, event.complete, event.at, event)
        elif event.cancel and not self._rules:
            self._cancel(editor)
        elif event.accept:
            self._accept(editor)
        elif event.save is not None:
            editor.save(event.save)
        elif event.close is not None:
            self._stop_waiting()
            editor.close(event.close)
            self._waiting.clear()
        elif event.disk is not None:
            if event.text is None:
                (self._folder / event.disk).unlink(missing_ok=True)
            else:
                _write(self._folder / event.disk, event.text)

    # ---- the keyboard ------------------------------------------------------------------------------------

    def _change(self, editor: Editor, event: Event, following: Event | None) -> None:
        path = event.change or ""
        self._type_along(event)
        editor.change(path, *event.edits)
        rules = self._rules
        if rules is None:
            self._keystroke()
            return
        # where the cursor then stood, and what came next, is told by the trace's own request
        told = following if following is not None and following.complete == path else None
        self._told = told
        if not typed(event) and not rules.asks_after_pastes:
            self._stop_waiting()  # nobody waits for a ghost here
            return
        truth = self._keystroke().truth = told.truth if told else None
        at = told.at if told and told.at else _after(editor, event)
        self._ask_soon(editor, rules, path, at, truth)

    def _type_along(self, event: Event) -> None:
        text = event.edits[0].text if len(event.edits) == 1 else ""
        along = text and event.edits[0].range[0] == event.edits[0].range[1] and self._left.startswith(text)
        self._left = self._left[len(text) :] if along else ""

    def _keystroke(self) -> Keystroke:
        now = self._now()
        if self._seen.keystrokes:
            self._seen.keystrokes[-1].next_ms = now
        keystroke = Keystroke(now)
        self._seen.keystrokes.append(keystroke)
        self._waiting.append(keystroke)
        return keystroke

    def _accept(self, editor: Editor) -> None:
        ghost, self._ghost = self._ghost, None
        if ghost and ghost.path in editor.buffers and editor.buffers[ghost.path].version == ghost.version:
            editor.change(ghost.path, ghost.edit)
            self._left = ""

    # ---- asking ------------------------------------------------------------------------------------------

    async def _asked(self, editor: Editor, path: str, at: Position, event: Event) -> None:
        """The trace asks here; with an editor's rules only what a person asked for, or a move."""
        if self._rules is None:
            if not self._waiting:  # asked without a change: a jump, or again at the same place
                self._keystroke()
            self._waiting[-1].truth = event.truth
            reply = self._complete(editor, path, at, event.truth, invoked=event.trigger == "invoked")
            if not self._recorded:
                await reply
        elif event.trigger == "invoked":
            self._stop_waiting()
            self._complete(editor, path, at, event.truth, invoked=True)
        elif event is self._told:
            pass  # its change has asked
        elif self._rules.asks_after_moves:
            self._ask_soon(editor, self._rules, path, at, event.truth)
        else:
            self._stop_waiting()

    def _ask_soon(self, editor: Editor, rules: Rules, path: str, at: Position, truth: str | None) -> None:
        self._stop_waiting()
        if rules.cancels:
            self._cancel(editor)

        async def later() -> None:
            await asyncio.sleep(rules.debounce_ms / 1000)
            self._complete(editor, path, at, truth)

        self._debounce = asyncio.create_task(later())

    def _stop_waiting(self) -> None:
        if self._debounce:
            self._debounce.cancel()
            self._debounce = None

    def _cancel(self, editor: Editor) -> None:
        if self._in_flight is not None:
            editor.cancel(self._in_flight)
            self._cancelled.add(self._in_flight)
            self._in_flight = None

    def _complete(
        self, editor: Editor, path: str, at: Position, truth: str | None, *, invoked: bool = False
    ) -> asyncio.Task[None]:
        last = self._last_line.get(path)
        self._last_line[path] = at[0]
        if self._waiting and (last is None or abs(at[0] - last) > COLD_JUMP_LINES):
            self._waiting[-1].cold = True
        number, reply = editor.complete(path, at, invoked=invoked)
        self._in_flight = number
        task = asyncio.create_task(self._record(number, reply, truth))
        self._replies.append(task)
        return task

    async def _record(self, number: int, pending: asyncio.Task[Reply], truth: str | None) -> None:
        reply = await pending
        if number in self._cancelled:  # an editor drops what comes all the same
            reply = Reply(None, "cancelled", reply.ms, False)
        if self._in_flight == number:
            self._in_flight = None
        ghost = reply.ghost
        request = Request(truth, reply.outcome, reply.ms, reply.stale, ghost.text if ghost else None)
        self._seen.requests.append(request)
        if ghost is not None and not reply.stale:
            request.along = ghost.text == self._left
            self._ghost, self._left = ghost, ghost.text
            now = self._now()
            for keystroke in self._waiting:
                keystroke.ghost_ms = now - keystroke.at_ms
                keystroke.right = truth is not None and ghost.text.split("\n")[0] == truth.split("\n")[0]
            self._waiting.clear()
        if not self._recorded:
            before = self._reading.counts
            self._reading = await self._read()
            request.counted = self._reading.counts.since(before)

    # ---- the daemon's counts -----------------------------------------------------------------------------

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            if self._recorded:
                self._reading = await self._read()
            self._seen.samples.append(Sample(self._now(), self._reading.counts.since(self._first)))

    async def _count(self) -> None:
        self._reading = await self._read()
        self._seen.samples.append(Sample(self._now(), self._reading.counts.since(self._first)))

    def _now(self) -> float:
        return (time.perf_counter() - self._start) * 1000


def _after(editor: Editor, event: Event) -> Position:
    """Behind what was inserted last."""
    buffer, edit = editor.buffers[event.change or ""], event.edits[-1]
    return buffer.position(buffer.offset(edit.range[0]) + len(edit.text))


def _read_text(file: Path) -> str:
    """As it lies on disk, from the trace's files or another program's; "" for a new one."""
    return file.read_bytes().decode() if file.is_file() else ""


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def _memory_mb(pid: int, file: str, key: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(key)), 0.0)
