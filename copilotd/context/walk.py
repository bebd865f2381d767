"""The files of a workspace folder that may be read: not ignored, not secret, not binary, not outside."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct, field

from copilotd.context.ignore import ALWAYS, Ignore
from copilotd.context.secrets import Secrets

MAX_BYTES = 1 << 20
"""A larger file is data, not source."""


class Found(Struct, frozen=True):
    path: str
    """absolute, symbolic links resolved"""
    relative: str
    """to the workspace folder, "/" between parts"""
    size: int
    mtime_ns: int


class Walk(Struct):
    """One walk of one folder; `skipped` counts what was left out and why, `folders` what was entered."""

    root: Path
    secrets: Secrets
    skipped: Counter[str] = field(default_factory=Counter)
    folders: list[str] = field(default_factory=list)

    def files(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[Found]:
        """Every readable file once, nearest the top first. Ends early when `cancelled` says so."""
        root = self.root.resolve()
        entered: set[tuple[int, int]] = set()
        pending = [(root, Ignore.root(root))]
        while pending and not cancelled():
            folder, ignore = pending.pop(0)
            try:
                status = folder.stat()
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                self.skipped["unreadable"] += 1
                continue
            if (status.st_dev, status.st_ino) in entered:  # a loop of links
                continue
            entered.add((status.st_dev, status.st_ino))
            self.folders.append(str(folder))
            for entry in entries:
                found = self._entry(entry, root, ignore)
                if isinstance(found, Path):
                    pending.append((found, ignore.enter(found)))
                elif found is not None:
                    yield found

    def _entry(self, entry: os.DirEntry[str], root: Path, ignore: Ignore) -> Found | Path | None:
        """A file to yield, a folder to enter, or None."""
        try:
            if entry.is_symlink():  # its target, if inside, is walked where it stands
                self.skipped["link"] += 1
                return None
            status = entry.stat(follow_symlinks=False)
        except OSError:
            self.skipped["unreadable"] += 1
            return None
        is_folder = stat.S_ISDIR(status.st_mode)
        if (is_folder and entry.name in ALWAYS) or ignore.ignored(entry.path, folder=is_folder):
            self.skipped["ignored"] += 1
            return None
        relative = os.path.relpath(entry.path, root).replace(os.sep, "/")
        if self.secrets.named(relative + "/" if is_folder else relative):
            self.skipped["secret"] += 1
            return None
        if is_folder:
            return Path(entry.path)
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for ever
            self.skipped["special"] += 1
            return None
        if status.st_size > MAX_BYTES:
            self.skipped["large"] += 1
            return None
        return Found(entry.path, relative, status.st_size, status.st_mtime_ns)

    def read(self, found: Found) -> str | None:
        """The file's text with "\\n" line ends; None, and counted, if it is no UTF-8 text or holds a secret."""
        try:
            with open(found.path, "rb", opener=_open_regular) as stream:
                data = stream.read(MAX_BYTES + 1)
        except OSError:
            self.skipped["unreadable"] += 1
            return None
        if b"\0" in data:
            self.skipped["binary"] += 1
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.skipped["encoding"] += 1
            return None
        if self.secrets.marked(found.relative, text):
            self.skipped["secret"] += 1
            return None
        return text.replace("\r\n", "\n").replace("\r", "\n")


def _open_regular(path: str, flags: int) -> int:
    """Never follows a link put in place since the walk, never waits on a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
