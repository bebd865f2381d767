"""Writes a trace while it happens: into one new file of 0600, never a file that holds or names a secret."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from copilotd.config import SessionSettings
from copilotd.context.secrets import Secrets
from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Edit, Event, event_line, header_line

log = logging.getLogger(__name__)

MARK = 256
"""characters around a change in which a mark of secrets may have come about"""


class Spot(Protocol):
    """Where a file lies."""

    @property
    def name(self) -> str:
        """Relative to the workspace."""

    @property
    def folder(self) -> str: ...

    @property
    def relative(self) -> str:
        """To that folder; what the rule of secrets looks at."""


Splice: TypeAlias = tuple[int, int, str]
"""replace text[start:end], in code points"""


class Document(NamedTuple):
    buffer: Buffer
    relative: str


class Recorder:
    """Events of one editor window, each written at once, so that an end at any moment leaves a whole trace.

    A document comes in as `disk`, with its text, and `open`. One that turns secret later is taken out of the
    file again, from its first line on. `finish` adds to each request what was typed there next.
    """

    def __init__(
        self,
        file: Path,
        descriptor: int,
        settings: Callable[[], SessionSettings],
        secrets: Secrets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`file` and `descriptor`: of `new_file`."""
        self._file = file
        self._descriptor: int | None = descriptor
        self._settings = settings
        self._secrets = secrets
        self._clock = clock
        self._start: float | None = None
        self._held: list[bytes] | None = []
        """lines before the header: what the editor's settings are is known with the first key only"""
        self._documents: dict[str, Document] = {}
        self._refused: set[str] = set()

    # ---- what happens ------------------------------------------------------------------------------------

    def open(self, spot: Spot, text: str) -> None:
        path = spot.name
        if (
            self._secrets.named(spot.relative, spot.folder)
            or self._secrets.linked(str(Path(spot.folder or "/", spot.relative)))
            or self._secrets.marked(spot.relative, text)
        ):
            self._refuse(path)
        if path not in self._refused:
            self._documents[path] = Document(Buffer(text), spot.relative)
            self._happened(Event(t=self._now(), disk=path, text=text))
            self._happened(Event(t=self._now(), open=path))

    def change(self, path: str, splices: Sequence[Splice]) -> None:
        document = self._documents.get(path)
        if document is None or not splices:
            return
        buffer, edits = document.buffer, []
        for start, end, text in splices:
            edit = Edit((buffer.position(start), buffer.position(end)), text)
            buffer.apply([edit])
            edits.append(edit)
            near = buffer.text[max(0, start - MARK) : start + len(text) + MARK]
            if self._secrets.marked(document.relative, near):
                self._refuse(path)
                return
        self._begin()
        self._happened(Event(t=self._now(), change=path, edits=tuple(edits)))

    def complete(self, path: str, offset: int, *, invoked: bool) -> None:
        if document := self._documents.get(path):
            self._begin()
            at = document.buffer.position(offset)
            trigger: Literal["automatic", "invoked"] = "invoked" if invoked else "automatic"
            self._happened(Event(t=self._now(), complete=path, at=at, trigger=trigger))

    def cancel(self) -> None:
        self._happened(Event(t=self._now(), cancel=True))

    def save(self, path: str) -> None:
        if path in self._documents:
            self._happened(Event(t=self._now(), save=path))

    def close(self, path: str) -> None:
        if self._documents.pop(path, None):
            self._happened(Event(t=self._now(), close=path))

    def finish(self) -> None:
        """The session has ended: write what was typed next to each request. A file without a key is removed."""
        if self._descriptor is None:
            return
        os.close(self._descriptor)
        self._descriptor = None
        try:
            if self._held is not None:
                self._file.unlink()
                return
            header, *lines = self._file.read_bytes().splitlines(keepends=True)
            events = [msgspec.json.decode(line, type=Event) for line in lines]
            self._replace([header, *map(event_line, with_truth(events))])
        except OSError as error:
            log.warning("the recording stays as it is: %s", error.strerror)

    # ---- the file ----------------------------------------------------------------------------------------

    def _now(self) -> float:
        now = self._clock()
        if self._start is None:
            self._start = now
        return round((now - self._start) * 1000)

    def _begin(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._write(header_line(self._file.stem, {}, self._settings()) + b"".join(held))

    def _happened(self, event: Event) -> None:
        line = event_line(event)
        if self._held is not None:
            self._held.append(line)
        else:
            self._write(line)

    def _write(self, data: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            log.warning("recording has ended: %s", error.strerror)
            os.close(self._descriptor)
            self._descriptor = None

    def _refuse(self, path: str) -> None:
        """Nothing of this file stays or comes."""
        self._refused.add(path)
        self._documents.pop(path, None)
        log.warning("a file that holds or names a secret is not recorded")
        if self._held is not None:
            self._held = [line for line in self._held if not _of(line, path)]
        elif self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            try:
                header, *lines = self._file.read_bytes().splitlines(keepends=True)
                self._replace([header, *(line for line in lines if not _of(line, path))])
                self._descriptor = os.open(
                    self._file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                )
            except OSError as error:  # better no trace than one with a secret
                log.warning("recording has ended: %s", error.strerror)
                with contextlib.suppress(OSError):
                    self._file.unlink()

    def _replace(self, lines: Iterable[bytes]) -> None:
        partial, descriptor = new_file(self._file.with_suffix(".partial"))
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines)
        partial.replace(self._file)


def new_file(wanted: Path) -> tuple[Path, int]:
    """A file that was not there, for its owner alone: `wanted`, or the first of FILE-2, FILE-3, … Raises
    OSError."""
    if wanted.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    for number in range(1, 1000):
        file = wanted if number == 1 else wanted.with_stem(f"{wanted.stem}-{number}")
        try:
            return file, os.open(
                file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except FileExistsError:
            continue
    raise FileExistsError(f"{wanted} and a thousand more are there already")


def _of(line: bytes, path: str) -> bool:
    return msgspec.json.decode(line, type=Event).path == path


def with_truth(events: Sequence[Event]) -> Iterator[Event]:
    """The events, each request with what its line got next: how it stood when the person left it."""
    buffers: dict[str, Buffer] = {}
    texts: dict[str, str] = {}
    open_requests: list[int] = []
    truths: dict[int, str] = {}

    def settle(path: str) -> None:
        buffer = buffers.get(path)
        for index in [index for index in open_requests if events[index].complete == path]:
            open_requests.remove(index)
            at = events[index].at
            if buffer is not None and at is not None:
                before, after = asked[index]
                line = _line(buffer, at[0])
                if line.startswith(before):
                    rest = line[len(before) :]
                    truths[index] = rest.removesuffix(after) if after else rest

    asked: dict[int, tuple[str, str]] = {}
    for index, event in enumerate(events):
        if event.disk is not None and event.text is not None:
            texts[event.disk] = event.text
        elif event.open is not None:
            buffers[event.open] = Buffer(texts.get(event.open, ""))
        elif event.change is not None and event.change in buffers:
            waiting = {
                at[0] for i in open_requests if (at := events[i].at) and events[i].complete == event.change
            }
            if not _within(event, waiting):
                settle(event.change)
            buffers[event.change].apply(event.edits)
        elif event.complete is not None and event.at is not None and event.complete in buffers:
            buffer, place = buffers[event.complete], event.at
            line, offset = _line(buffer, place[0]), buffer.offset(place)
            column = offset - buffer.offset((place[0], 0))
            asked[index] = line[:column], line[column:]
            open_requests.append(index)
        elif event.close is not None:
            settle(event.close)
            buffers.pop(event.close, None)
    for path in list(buffers):
        settle(path)
    for index, event in enumerate(events):
        yield msgspec.structs.replace(event, truth=truths[index]) if truths.get(index) else event


def _within(event: Event, lines: set[int]) -> bool:
    """Whether a change stays in the one line that is written."""
    return all(
        edit.range[0][0] == edit.range[1][0] and {edit.range[0][0]} >= lines and "\n" not in edit.text
        for edit in event.edits
    )


def _line(buffer: Buffer, number: int) -> str:
    start = buffer.offset((number, 0))
    return buffer.text[start:].split("\n", 1)[0].rstrip("\r")
