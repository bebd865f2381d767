"""Messages between front and daemon: msgspec Structs over msgpack frames.

A frame is a 4-byte big-endian length and that many bytes of msgpack, at most 64 MB. Offsets are counted in
code points of the document's text (Python `str` indices): the front owns UTF-16 and line arithmetic.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from copilotd.config import SessionSettings

if TYPE_CHECKING:
    import asyncio

PROTOCOL = 1
"""Part of the socket's name: fronts and daemons of different protocols do not meet."""

MAX_FRAME = 64 * 1024 * 1024
HEADER = struct.Struct(">I")


class FrameError(Exception):
    """The peer sent what is no frame of ours; the connection is closed."""


# ---- front to daemon -------------------------------------------------------------------------------------


class Hello(Struct, tag="hello", frozen=True):
    """First message of every connection."""

    version: str
    role: Literal["editor", "control"]
    editor: str = ""
    """name and version of the editor, for status"""


class Folder(Struct, frozen=True):
    path: str
    settings: SessionSettings | None = None
    """None: the session's"""
    trusted: bool = True


class Configure(Struct, tag="configure", frozen=True):
    """Folders and settings of the session; replaces what was said before."""

    settings: SessionSettings
    folders: tuple[Folder, ...] = ()


class Open(Struct, tag="open", frozen=True):
    """A document's text, whole. Also sent again after a daemon restart, and for a moved window."""

    uri: str
    language: str
    version: int
    text: str
    cut_before: bool = False
    """the text is a window of a larger document that goes on above"""
    cut_after: bool = False


class Splice(Struct, frozen=True):
    """Replace text[start:end] by text. Splices of one Change apply one after the other."""

    start: int
    end: int
    text: str


class Change(Struct, tag="change", frozen=True):
    uri: str
    version: int
    splices: tuple[Splice, ...]


class Close(Struct, tag="close", frozen=True):
    uri: str


class Selected(Struct, frozen=True):
    """LSP `selectedCompletionInfo`: the entry of the popup that is highlighted."""

    start: int
    end: int
    text: str


class Complete(Struct, tag="complete", frozen=True, kw_only=True):
    id: int
    uri: str
    version: int
    offset: int
    trigger: Literal["automatic", "invoked"] = "automatic"
    selected: Selected | None = None
    tab_size: int | None = None
    insert_spaces: bool | None = None
    explain: bool = False
    """answer with the Explanation, which holds user text: only for a person who asked"""


class Cancel(Struct, tag="cancel", frozen=True):
    id: int


class Accepted(Struct, tag="accepted", frozen=True):
    """The person took an item, or its first `length` code points (None: all of it)."""

    item: str
    length: int | None = None


class Pause(Struct, tag="pause", frozen=True):
    paused: bool


class Control(Struct, tag="control", frozen=True):
    """From `copilotd status|metrics|stop|reload|unload`; answered by Report (the first two) or Done."""

    verb: Literal["status", "metrics", "stop", "reload", "unload"]


class AskOffer(Struct, tag="ask_offer", frozen=True):
    """The person wants to know what could be fetched; answered by Offer."""


FromFront: TypeAlias = (
    Hello | Configure | Open | Change | Close | Complete | Cancel | Accepted | Pause | AskOffer | Control
)

# ---- daemon to front -------------------------------------------------------------------------------------


class Welcome(Struct, tag="welcome", frozen=True):
    version: str
    pid: int


class Item(Struct, frozen=True):
    """Replace text[start:end] of the request's version by `text` ("\\n" only, never empty)."""

    id: str
    start: int
    end: int
    text: str


class Answer(Struct, tag="answer", frozen=True):
    """One per Complete, whatever happened to it."""

    id: int
    items: tuple[Item, ...] = ()
    outcome: Literal["answered", "empty", "cancelled", "superseded"] = "answered"
    reason: str = ""
    """why it is empty, in a word that `status` counts: loading, secret, off, nothing, …"""
    explanation: bytes | None = None
    """msgpack of completion.explanation.Explanation"""


class State(Struct, tag="state", frozen=True):
    """Pushed on every change; becomes `copilotd/didChangeStatus` and `$/progress`."""

    state: Literal["loading", "ready", "failed", "paused"]
    message: str = ""
    progress: float | None = None
    """0 … 1 while loading"""
    model: str = ""
    device: str = ""


class Notice(Struct, tag="notice", frozen=True):
    """Said to the person once: what is wrong and what to do."""

    level: Literal["error", "warning", "info", "log"]
    """log: nothing to be done at once; the editor keeps it among its messages and does not show it"""
    text: str


class Choice(Struct, frozen=True):
    title: str
    pull: str = ""
    """what `copilotd pull` is to fetch; "": nothing"""


class Offer(Struct, tag="offer", frozen=True):
    """Better models than those in use could be fetched: to one front, once, and to whoever asks."""

    text: str
    choices: tuple[Choice, ...] = ()


class Report(Struct, tag="report", frozen=True):
    body: msgspec.Raw
    """msgpack of daemon.status.Status, or of daemon.metrics.Report"""


class Done(Struct, tag="done", frozen=True):
    """The verb was carried out, or could not be; the message is for the person.

    To an editor: the daemon leaves on purpose; the front comes back when it next needs one.
    """

    message: str = ""
    failed: bool = False


FromDaemon: TypeAlias = Welcome | Answer | State | Notice | Offer | Report | Done

_encoder = msgspec.msgpack.Encoder()
_from_front = msgspec.msgpack.Decoder(FromFront)
_from_daemon = msgspec.msgpack.Decoder(FromDaemon)


def frame(message: FromFront | FromDaemon) -> bytes:
    """The message as one frame. Raises FrameError over 64 MB."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def frame_length(header: bytes) -> int:
    """Bytes of the body that follows a 4-byte header. Raises FrameError over 64 MB."""
    length: int = HEADER.unpack(header)[0]
    if length > MAX_FRAME:
        raise FrameError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
    return length


def from_front(body: bytes) -> FromFront:
    """Raises FrameError for anything that is not a front's message."""
    try:
        return _from_front.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a front's message: wrong {_where(error)}") from None


def from_daemon(body: bytes) -> FromDaemon:
    """Raises FrameError for anything that is not a daemon's message."""
    try:
        return _from_daemon.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a daemon's message: wrong {_where(error)}") from None


def _where(error: msgspec.DecodeError) -> str:
    """The key's path alone: what msgspec says of a value may quote it, and that may be somebody's text."""
    return str(error).rpartition(" - at ")[2] if " - at " in str(error) else "as a whole"


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The body of the next frame. Raises FrameError, and EOFError (IncompleteReadError) at the end."""
    return await reader.readexactly(frame_length(await reader.readexactly(HEADER.size)))
