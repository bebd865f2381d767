"""The files of a workspace folder that may be read: not ignored, not secret, not binary, not outside."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from copilotd.context.ignore import ALWAYS, Ignore
from copilotd.context.secrets import Secrets

MAX_BYTES = 1 << 20
"""A larger file is data, not source."""

MAX_DEPTH = 64
"""Nobody keeps source deeper; somebody who wants to tire a walk would."""

Skip: TypeAlias = Literal[
    "binary",
    "deep",
    "encoding",
    "ignored",
    "large",
    "link",
    "name",
    "secret",
    "special",
    "unreadable",
    "full",
]


class Found(Struct, frozen=True):
    path: str
    """absolute, symbolic links resolved"""
    relative: str
    """to the workspace folder, "/" between parts"""
    size: int
    mtime_ns: int


class Listing(Struct, frozen=True):
    """One folder: what in it may be read, which folders may be entered under which rules, what was skipped."""

    files: tuple[Found, ...]
    folders: tuple[tuple[str, Ignore], ...]
    skipped: dict[str, Skip]
    """by path"""


class Walk:
    """The rules of one workspace folder. Links are never followed, so nothing outside it is seen."""

    def __init__(self, root: Path, secrets: Secrets) -> None:
        self.root = root.resolve()
        self._secrets = secrets

    def files(self) -> Iterator[Found]:
        """Every file that may be read, nearest the top first."""
        pending = deque([(str(self.root), Ignore.root(self.root))])
        while pending:
            listing = self.list(*pending.popleft())
            pending.extend(listing.folders)
            yield from listing.files

    def list(self, folder: str, ignore: Ignore) -> Listing:
        """One folder's entries; an unreadable folder is empty, and counted."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return Listing((), (), {folder: "unreadable"})
        files: list[Found] = []
        folders: list[tuple[str, Ignore]] = []
        skipped: dict[str, Skip] = {}
        for entry in entries:
            found = self._entry(entry, ignore)
            if isinstance(found, Found):
                files.append(found)
            elif found == "enter":
                folders.append((entry.path, ignore.enter(Path(entry.path))))
            else:
                skipped[entry.path] = found
        return Listing(tuple(files), tuple(folders), skipped)

    def _entry(self, entry: os.DirEntry[str], ignore: Ignore) -> Found | Literal["enter"] | Skip:
        try:
            if not _is_utf8(entry.name):
                return "name"
            if entry.is_symlink():  # its target, if inside, is walked where it stands
                return "link"
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return "unreadable"
        is_folder = stat.S_ISDIR(status.st_mode)
        if (is_folder and entry.name in ALWAYS) or ignore.ignored(entry.path, folder=is_folder):
            return "ignored"
        relative = os.path.relpath(entry.path, self.root).replace(os.sep, "/")
        if self._secrets.named(relative + "/" if is_folder else relative, str(self.root)):
            return "secret"
        if is_folder:
            return "enter" if relative.count("/") < MAX_DEPTH else "deep"
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for ever
            return "special"
        if status.st_size > MAX_BYTES:
            return "large"
        return Found(entry.path, relative, status.st_size, status.st_mtime_ns)

    def ignores(self, path: str) -> bool:
        """Whether the ignore rules keep out a file below the root, wherever above it they stand."""
        ignore, folder = Ignore.root(self.root), self.root
        *above, _ = Path(path).relative_to(self.root).parts
        for name in above:
            folder /= name
            if name in ALWAYS or ignore.ignored(str(folder), folder=True):
                return True
            ignore = ignore.enter(folder)
        return ignore.ignored(path, folder=False)

    def read(self, found: Found) -> tuple[str, None] | tuple[None, Skip]:
        """The file's text with "\\n" line ends, or why it is not to be had: no UTF-8 text, a secret in it."""
        try:
            with open(found.path, "rb", opener=_open_regular) as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError:
            return None, "unreadable"
        if b"\0" in data:
            return None, "binary"
        try:
            text = data.decode("utf-8").lstrip("\ufeff")
        except UnicodeDecodeError:
            return None, "encoding"
        if self._secrets.marked(found.relative, text):
            return None, "secret"
        return text.replace("\r\n", "\n").replace("\r", "\n"), None


def _is_utf8(name: str) -> bool:
    """Python gives other bytes as lone surrogates, which no message can carry."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _open_regular(path: str, flags: int) -> int:
    """Never follows a link put in place since the walk, never waits on a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
