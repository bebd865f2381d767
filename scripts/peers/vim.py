"""A client with llama.vim's rules: layout, look-back cache, retry, the request ahead."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from peers.llama import Completion
from peers.screen import Screen, Stroke

PREFIX_LINES, SUFFIX_LINES = 256, 64
TOKENS = 128
FIRST_MS, AHEAD_MS = 250, 1000
"""how long the server may go on past the first line"""
RETRY_S = 0.1
LOOK_BACK = 128
REMEMBERED = 250
LINE_SUFFIX = 8
"""characters after the cursor on its line; with more it is not asked by itself"""


Infill = Callable[[str, str, str, int, float], Completion]
"""what answers: prefix, suffix, middle, tokens and for how many ms it may go on past the first line"""


class Place(Struct, frozen=True):
    """What is asked: whole lines above, the line up to the cursor, the rest of it and lines below."""

    prefix: str
    middle: str
    suffix: str


def place(text: str, cursor: int) -> Place | None:
    """None where llama.vim does not ask by itself."""
    start = text.rfind("\n", 0, cursor) + 1
    end = text.find("\n", cursor)
    end = len(text) if end < 0 else end
    if end - cursor > LINE_SUFFIX:
        return None
    above = text[:start].splitlines(keepends=True)[-PREFIX_LINES:]
    below = text[end + 1 :].splitlines(keepends=True)[:SUFFIX_LINES]
    return Place("".join(above), text[start:cursor], text[cursor:end] + "\n" + "".join(below))


class LlamaVim:
    """Suggests to a screen. Requests go one after the other, each in a thread of its own."""

    def __init__(self, infill: Infill, screen: Screen) -> None:
        self._infill = infill
        self._screen = screen
        self._remembered: OrderedDict[Place, str] = OrderedDict()
        self._busy = False
        self._latest: tuple[str, int, Stroke] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = 0

    def open(self, path: str, text: str) -> None:
        self._latest = None

    def change(self, path: str, edits: object) -> None:
        pass

    def close(self, path: str) -> None:
        self._latest = None

    def complete(self, path: str, at: tuple[int, int], text: str, cursor: int, stroke: Stroke) -> None:
        self._latest = (text, cursor, stroke)
        if not self._remember(text, cursor, stroke, time.perf_counter()):
            self._start(self._ask(text, cursor, stroke))

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, text: str, cursor: int, stroke: Stroke) -> None:
        while self._busy:
            await asyncio.sleep(RETRY_S)
            if self._latest is None or self._latest[2] is not stroke:
                return  # a newer one has its own timer
            if self._remember(text, cursor, stroke, time.perf_counter()):
                return
        wanted = place(text, cursor)
        if wanted is None:
            return
        started = time.perf_counter()
        line_ms = await self._request(wanted, FIRST_MS)
        if line_ms is None:
            return
        ready = started + line_ms / 1e3
        now = self._latest
        if now is not None:
            self._remember(*now, ready)

    async def _request(self, wanted: Place, limit_ms: float) -> float | None:
        """Milliseconds until the first complete line of the answer, which is remembered."""
        self._busy = True
        try:
            self.requests += 1
            blank = wanted.middle.isspace()
            middle = "" if blank else wanted.middle
            said = await asyncio.to_thread(
                self._infill, wanted.prefix, wanted.suffix, middle, TOKENS, limit_ms
            )
        finally:
            self._busy = False
        answer = said.text.removeprefix(wanted.middle) if blank else said.text
        self._remembered[wanted] = answer
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        return said.line_ms if answer.strip() else None

    def _remember(self, text: str, cursor: int, stroke: Stroke, ready: float) -> bool:
        """Show what an earlier answer says about this place; then ask ahead, as if it were accepted."""
        here = place(text, cursor)
        if here is None:
            return False
        for back in range(min(LOOK_BACK, len(here.middle)) + 1):
            middle = here.middle[: len(here.middle) - back]
            answer = self._remembered.get(Place(here.prefix, middle, here.suffix))
            typed = here.middle[len(middle) :]
            if answer is None or not answer.startswith(typed) or not answer[back:].strip():
                continue
            if self._screen.show(text[:cursor], text[cursor:], answer[back:], stroke, ready):
                self._start(self._ahead(text, cursor, answer[back:]))
            return True
        return False

    async def _ahead(self, text: str, cursor: int, answer: str) -> None:
        after = place(text[:cursor] + answer + text[cursor:], cursor + len(answer))
        if self._busy or after is None or after in self._remembered:
            return
        await self._request(after, AHEAD_MS)
