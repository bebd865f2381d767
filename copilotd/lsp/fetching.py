"""Offering models that could be fetched, and fetching one: by `copilotd pull` in a process of its own.

Nothing is fetched but what a person has chosen. It ends with its window; what was fetched so far is kept, or
not, as `pull` sees fit.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import msgspec
from lsprotocol import types
from msgspec import Struct

from copilotd import wire

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

OURS = [sys.executable, "-P", "-m", "copilotd"]
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
"""of a model in the catalogue; neither an option nor a path"""

INTERRUPTED = 130
"""the code of a pull that was ended by a person"""

CREATE_S = 3.0
"""how long the editor may take to make room for progress; after that it goes without"""

BEGINS = "copilotd pull: "
LONGEST = 400
"""characters of a complaint"""

_tokens = count(1)


class Line(Struct):
    """Of `copilotd pull --json`."""

    stage: str
    done: int
    total: int


class Fetching:
    """Asks, fetches and shows how far it is. `pull` has the daemon take what is there then."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._listening = False
        self._unasked: list[wire.Offer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: Process | None = None
        self._token = ""

    def begin(self) -> None:
        """The editor is ready for requests of ours."""
        self._listening = True
        unasked, self._unasked = self._unasked, []
        for offer in unasked:
            self.offer(offer)

    def offer(self, offer: wire.Offer) -> None:
        """Ask the person. An editor that shows no buttons shows the text, which names the commands."""
        if not self._listening:
            self._unasked.append(offer)
        elif offer.choices and self._front.supports("window", "showMessage", "messageActionItem"):
            self._start(self._ask(offer))
        else:
            self._say(types.MessageType.Info, offer.text)

    def fetch(self, name: str) -> None:
        """A model by its name, one at a time."""
        if not NAME.fullmatch(name):
            self._say(types.MessageType.Warning, "copilotd: no model has such a name")
        elif self._token:
            self._say(types.MessageType.Info, "copilotd is fetching a model already.")
        else:
            self._token = f"copilotd-fetch-{next(_tokens)}"
            self._start(self._fetch(name))

    def cancel(self, token: int | str) -> None:
        if token == self._token and self._running is not None:
            _interrupt(self._running)

    def close(self) -> None:
        """The window closes."""
        for task in self._tasks:
            task.cancel()
        if self._running is not None:
            _interrupt(self._running)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- asking ------------------------------------------------------------------------------------------

    async def _ask(self, offer: wire.Offer) -> None:
        actions = [types.MessageActionItem(choice.title) for choice in offer.choices]
        answer = await self._front.request(
            types.WINDOW_SHOW_MESSAGE_REQUEST,
            types.ShowMessageRequestParams(types.MessageType.Info, offer.text, actions),
        )
        title = answer.get("title") if isinstance(answer, dict) else None
        for choice in offer.choices:
            if choice.title == title and choice.pull:
                self.fetch(choice.pull)

    # ---- fetching ----------------------------------------------------------------------------------------

    async def _fetch(self, name: str) -> None:
        token = self._token
        shows = await self._shows(token)
        if shows:
            self._tell(types.WorkDoneProgressBegin(f"copilotd: {name}", percentage=0, cancellable=True))
        else:
            self._say(types.MessageType.Info, f"copilotd fetches {name}; it says when it is there.")
        try:
            code, complaint = await self._pull(name, shows)
        except OSError as error:
            code, complaint = 1, f"copilotd could not fetch {name}: {error.strerror}"
        finally:
            if shows:
                self._tell(types.WorkDoneProgressEnd())
            self._token = ""
        if code == 0:
            self._say(
                types.MessageType.Info,
                f"{name} is there; copilotd writes with it if it is the best that fits.",
            )
        elif code != INTERRUPTED:
            self._say(types.MessageType.Warning, complaint or f"copilotd could not fetch {name}.")

    async def _shows(self, token: str) -> bool:
        """Whether the editor shows progress under this token."""
        if not self._front.supports("window", "workDoneProgress"):
            return False
        create = types.WorkDoneProgressCreateParams(token)
        try:
            async with asyncio.timeout(CREATE_S):
                await self._front.request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, create)
        except TimeoutError:
            return False
        return True

    async def _pull(self, name: str, shows: bool) -> tuple[int, str]:
        """The exit code, and what was wrong."""
        self._running = process = await asyncio.create_subprocess_exec(
            *OURS, "pull", "--json", name, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            complaints = asyncio.ensure_future(process.stderr.read())
            async for line in process.stdout:
                if shows:
                    self._progress(line)
            return await process.wait(), _complaint(await complaints)
        finally:
            self._running = None

    def _progress(self, line: bytes) -> None:
        try:
            read = msgspec.json.decode(line, type=Line)
        except msgspec.DecodeError:
            return  # for people
        percent = 100 * read.done // read.total if read.total else None
        text = f"{read.stage}, {read.done / 1e6:.0f} of {read.total / 1e6:.0f} MB"
        self._tell(types.WorkDoneProgressReport(message=text, percentage=percent))

    def _tell(
        self,
        value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd,
    ) -> None:
        self._front.protocol.notify(types.PROGRESS, types.ProgressParams(self._token, value))

    def _say(self, level: types.MessageType, text: str) -> None:
        self._front.window_show_message(types.ShowMessageParams(level, text))


def _interrupt(process: Process) -> None:
    """And what it has started, as Ctrl-C would."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


def _complaint(output: bytes) -> str:
    """What `copilotd pull` said was wrong; "" if it said nothing."""
    text = " ".join(output.decode(errors="replace").split())
    return text[text.rindex(BEGINS) :][:LONGEST] if BEGINS in text else ""
