"""The trace format `copilotd-trace/1`: JSON Lines, a header and timed events, UTF-16 columns."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from copilotd.config import SessionSettings

FORMAT = "copilotd-trace/1"

_T = TypeVar("_T")

Column: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Position: TypeAlias = tuple[Column, Column]
"""line, UTF-16 column, both from 0"""


class TraceError(Exception):
    """The file is no trace we play. The message names file, line and key."""


class Header(Struct, frozen=True):
    format: str
    name: str
    files: dict[str, str]
    settings: dict[str, object] | None = None


class Edit(Struct, frozen=True):
    """Replace a range by text; the edits of one event apply one after the other."""

    range: tuple[Position, Position]
    text: str


class Event(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a trace: `t` in milliseconds since the start, and exactly one thing that happens."""

    t: float
    open: str | None = None
    change: str | None = None
    edits: tuple[Edit, ...] = ()
    complete: str | None = None
    at: Position | None = None
    trigger: Literal["automatic", "invoked"] = "automatic"
    truth: str | None = None
    cancel: bool = False
    accept: bool = False
    save: str | None = None
    close: str | None = None
    disk: str | None = None
    text: str | None = None

    @property
    def path(self) -> str | None:
        return self.open or self.change or self.complete or self.save or self.close or self.disk


class Trace(Struct, frozen=True):
    name: str
    files: dict[str, str]
    settings: SessionSettings
    events: tuple[Event, ...]


def header_line(name: str, files: dict[str, str], settings: SessionSettings | None = None) -> bytes:
    """The first line of a trace, with the settings that are not the default."""
    chosen: dict[str, object] = {}
    if settings is not None:
        usual = msgspec.to_builtins(SessionSettings())
        said = msgspec.to_builtins(settings)
        chosen = {key: value for key, value in said.items() if value != usual[key]}
    return msgspec.json.encode(Header(FORMAT, name, files, chosen)) + b"\n"


def event_line(event: Event) -> bytes:
    """One line of a trace: what happens and what belongs to it, nothing else."""
    said: dict[str, object] = msgspec.to_builtins(event)
    belongs = {"change": ("edits",), "complete": ("at", "trigger"), "disk": ("text",)}
    kept = {"t", *(key for kind, keys in belongs.items() if said[kind] is not None for key in keys)}
    line = {key: value for key, value in said.items() if key in kept or value not in (None, False, [], ())}
    if event.complete is None:
        line.pop("trigger", None)
    return msgspec.json.encode(line) + b"\n"


def load(file: Path) -> Trace:
    """Read and check a trace. Raises TraceError."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}") from None
    if not lines:
        raise TraceError(f"{file}: empty; a trace begins with a header line")
    try:
        header = _decode(lines[0], Header, file, 1)
    except TraceError as error:
        raise TraceError(f"{error}; a trace's first line is its header: `copilotd replay --help`") from None
    if header.format != FORMAT:
        raise TraceError(f"{file}:1: `format` is {header.format!r}; this version plays {FORMAT!r}")
    for path in header.files:
        _check_path(path, file, 1)
    settings = _session_settings(header.settings or {}, file)
    events = []
    documents: set[str] = set()
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            try:
                event = _decode(line, Event, file, number)
            except TraceError as error:
                cut = number == len(lines) and not file.read_bytes().endswith(b"\n")
                hint = "; it was cut short: without its last line it can be played" if cut else ""
                raise TraceError(f"{error}{hint}") from None
            if event.path is not None:
                _check_path(event.path, file, number)
            if event.complete is not None and event.at is None:
                raise TraceError(f"{file}:{number}: `complete` needs `at`: [line, column]")
            _check_open(event, documents, file, number)
            events.append(event)
    return Trace(header.name, header.files, settings, tuple(events))


def _decode(line: bytes, kind: type[_T], file: Path, number: int) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{file}:{number}: {error}") from None


def _check_path(path: str, file: Path, number: int) -> None:
    parts = PurePosixPath(path).parts
    if (
        not parts
        or "\0" in path
        or path.startswith("/")
        or ".." in parts
        or "\\" in path
        or str(PurePosixPath(path)) != path
    ):
        raise TraceError(
            f"{file}:{number}: path {path!r} must be relative and normalised, inside the workspace"
        )


def _check_open(event: Event, documents: set[str], file: Path, number: int) -> None:
    """An editor changes, asks in and closes what it has opened; `documents` follows."""
    needs = event.change or event.complete or event.close
    if needs is not None and needs not in documents:
        raise TraceError(f"{file}:{number}: {needs!r} is not open here; `open` comes first")
    if event.open is not None:
        documents.add(event.open)
    if event.close is not None:
        documents.discard(event.close)


def _session_settings(settings: dict[str, object], file: Path) -> SessionSettings:
    unknown = sorted(set(settings) - set(SessionSettings.__struct_fields__))
    if unknown:
        raise TraceError(f"{file}:1: `settings.{unknown[0]}` is no session key; a trace may set those alone")
    try:
        return msgspec.convert(settings, SessionSettings)
    except msgspec.ValidationError as error:
        raise TraceError(f"{file}:1: settings: {error}") from None
