"""The lock that makes one daemon of many starts: held by the kernel, so gone with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from copilotd.daemon import platform


class FileLock:
    """An exclusive flock on a file that stays behind; its text is only a hint for people and fronts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self) -> bool:
        """False while another process holds it. Never waits."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        if not self.holds():  # the file was replaced between open and flock
            self.release()
            return False
        return True

    def holds(self) -> bool:
        """Is the file at our path still the one we hold?"""
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def write(self, text: str) -> None:
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def read(self) -> str:
        """What the holder wrote; "" if nothing can be read."""
        try:
            return self.path.read_text(errors="replace")
        except OSError:
            return ""

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def daemon_lock(environ: Mapping[str, str] = os.environ) -> FileLock:
    """Held by the daemon for all its life; text: pid and socket path, a line each."""
    return FileLock(platform.lock_folder(environ) / f"{platform.key()}.lock")


def start_lock(environ: Mapping[str, str] = os.environ) -> FileLock:
    """Held by the front that starts a daemon."""
    return FileLock(platform.lock_folder(environ) / f"{platform.key()}.start")


def recorded(lock: FileLock) -> tuple[int | None, Path | None]:
    """pid and socket of the daemon that wrote the lock file last, if that can be read."""
    lines = lock.read().splitlines()
    pid = int(lines[0]) if lines and lines[0].isdecimal() else None
    path = Path(lines[1]) if len(lines) > 1 and lines[1].startswith("/") else None
    return pid, path
