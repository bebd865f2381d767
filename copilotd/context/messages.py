"""Messages between the daemon and the context process: msgspec Structs over length-prefixed msgpack."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

# ---- daemon to context -----------------------------------------------------------------------------------


class Begin(Struct, tag="begin", frozen=True):
    """First message: what to tokenise with and what the user allows."""

    tokenizer: str
    """folder with a tokenizer.json; "": nothing is tokenised, snippets alone are wanted"""
    secrets_allowed: tuple[str, ...] = ()
    verbose: bool = False
    """say of each file why it is passed over"""


class Folders(Struct, tag="folders", frozen=True):
    """The folders of a session; none when it has ended."""

    client: str
    paths: tuple[str, ...] = ()


class Buffer(Struct, tag="buffer", frozen=True):
    """An open document's text; None when it is closed and the file on disk counts again."""

    client: str
    path: str
    """absolute; a document without a file has its URI here"""
    language: str = ""
    text: str | None = None


class Ask(Struct, tag="ask", frozen=True):
    """Which snippets would a reader want to see here?"""

    client: str
    path: str
    language: str
    names: tuple[str, ...]
    """identifiers near the cursor, the nearest first"""
    known: str
    """text that the prompt holds anyway"""


ToContext: TypeAlias = Begin | Folders | Buffer | Ask

# ---- context to daemon -----------------------------------------------------------------------------------


class Visible(Struct, tag="visible", frozen=True):
    """Which files of the index a session may be shown: those of its folders and its own buffers."""

    client: str
    roots: int
    """bit set of its folders"""
    owner: int
    """its number as the owner of buffers"""
    hidden: tuple[int, ...]
    """files on disk that are open in it"""
    buffers: dict[str, int] = {}
    """where its buffers are, by path as the daemon has it: none is looked up for itself"""


class Snippet(Struct, frozen=True):
    path: str
    """relative to its folder"""
    line: int
    """of its first line, from 0"""
    text: str
    reason: str
    """definition, outline, recent edit"""


class Snippets(Struct, tag="snippets", frozen=True):
    client: str
    path: str
    snippets: tuple[Snippet, ...]


class Progress(Struct, tag="progress", frozen=True):
    """What `copilotd status` shows; sent when it has changed and settled."""

    folders: int = 0
    files: int = 0
    tokens: int = 0
    skipped: dict[str, int] = {}
    settled: bool = False
    """every folder is walked and every change taken in"""
    reads: int = 0
    """files read since the start"""


class Skipped(Struct, tag="skipped", frozen=True):
    """For the log, where somebody looks for a file that is not found."""

    path: str
    why: str


class Warned(Struct, tag="warned", frozen=True):
    """Said to the person once."""

    text: str


FromContext: TypeAlias = Visible | Snippets | Progress | Skipped | Warned


def encode(message: ToContext | FromContext) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


class Frames:
    """Cuts a stream of bytes into messages of one type."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        self._rest += data
        messages = []
        while len(self._rest) >= 4:
            end = 4 + int.from_bytes(self._rest[:4], "big")
            if len(self._rest) < end:
                break
            messages.append(self._decoder.decode(bytes(self._rest[4:end])))
            del self._rest[:end]
        return messages
