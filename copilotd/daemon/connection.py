"""One front or command at the other end of the socket."""

from __future__ import annotations

import asyncio

import msgspec

from copilotd import wire
from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.config import Loaded
from copilotd.daemon.loading import ModelState
from copilotd.daemon.scheduler import Job
from copilotd.daemon.session import Session


class Connection:
    def __init__(self, client: str, writer: asyncio.StreamWriter) -> None:
        self.client = client
        self.session: Session | None = None
        """None before Hello, and for commands"""
        self.asked: dict[int, Job] = {}
        """requests that still want their one answer"""
        self.shown: dict[str, Suggestion] = {}
        """what was answered last, by item id"""
        self.shown_for: Ask | None = None
        """what was asked then"""
        self.waits_for: tuple[str, ...] = ()
        """states of the models that end a command's waiting"""
        self._writer = writer
        self._told: set[wire.Notice] = set()

    def begin(self, editor: str, configured: Loaded) -> None:
        self.session = Session(self.client, configured)
        self.session.editor = editor

    def send(self, message: wire.FromDaemon) -> None:
        """Never waits. A peer that does not read is let go rather than buffered for ever."""
        if self._writer.is_closing():
            return
        self._writer.write(wire.frame(message))
        if self._writer.transport.get_write_buffer_size() > wire.MAX_FRAME:
            self._writer.transport.abort()

    def answer(self, job: Job, completion: Completion) -> None:
        self.shown_for = job.ask
        self.shown = {
            f"{self.client}.{job.id}.{number}": suggestion
            for number, suggestion in enumerate(completion.suggestions)
        }
        items = tuple(wire.Item(item, s.start, s.end, s.text) for item, s in self.shown.items())
        self.send(
            wire.Answer(
                job.id,
                items,
                outcome="answered" if items else "empty",
                reason=completion.reason,
                explanation=msgspec.msgpack.encode(completion.explanation) if job.explain else None,
            )
        )

    def shows_new(self, ask: Ask, completion: Completion) -> bool:
        """Whether an answer to be given is more than what typing has left of the last one."""
        return bool(completion.suggestions) and not any(
            self.shown_for is not None
            and self.shown_for.uri == ask.uri
            and is_rest(before, ask, completion.suggestions[0])
            for before in self.shown.values()
        )

    def tell(self, models: ModelState) -> None:
        """The state of the models as this peer is to see it, and what it has not been told of it yet."""
        paused = self.session is not None and self.session.paused
        unloaded = models.state == "unloaded"
        self.send(
            wire.State(
                state="paused" if paused else ("ready" if models.state == "unloaded" else models.state),
                message="the models are unloaded; the next request loads them"
                if unloaded
                else models.message,
                progress=models.progress,
                model=models.name,
                device=models.device,
            )
        )
        if self.session is not None:
            for notice in models.notices:
                if notice not in self._told:
                    self._told.add(notice)
                    self.send(notice)

    def forget_notices(self) -> None:
        """A new load begins: what went wrong before may be said again."""
        self._told.clear()

    def close(self) -> None:
        self._writer.close()


def is_rest(before: Suggestion, ask: Ask, now: Suggestion) -> bool:
    """Is a suggestion for `ask` what is left of an earlier one, the rest of which has been typed?"""
    if not before.text.endswith(now.text):
        return False
    typed = ask.text[before.start : now.start].replace("\r\n", "\n")
    return before.start <= now.start and before.text == typed + now.text
