"""The daemon's place: the lock that makes it the only one, and the socket where it is found."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from copilotd.daemon import platform
from copilotd.daemon.lock import FileLock, daemon_lock, recorded

PATIENCE_S = 15.0
"""how long a start waits for a predecessor that is ending"""


class AlreadyRunning(Exception):
    def __init__(self, pid: int | None, path: Path) -> None:
        super().__init__(f"copilotd is already running (pid {pid}) at {path}")
        self.path = path


class Address:
    """Held from `claim` to `release`; given back by the kernel however the process ends."""

    def __init__(
        self,
        lock: FileLock,
        listener: socket.socket,
        path: Path,
        problems: list[str],
        environ: Mapping[str, str],
    ) -> None:
        self._lock = lock
        self._environ = environ
        self._take(listener, path, problems)

    def _take(self, listener: socket.socket, path: Path, problems: list[str]) -> None:
        self.listener = listener
        self.path = path
        self.problems = problems
        """what is wrong with the places that would have been better"""
        self._inode = path.stat().st_ino
        self._lock.write(f"{os.getpid()}\n{path}\n")

    @classmethod
    def claim(cls, answers: Callable[[Path], bool], environ: Mapping[str, str] = os.environ) -> Address:
        """Become the user's daemon.

        `answers(path)` says whether a daemon answers at a socket. Raises AlreadyRunning, and Unusable when
        there is no place or a predecessor neither answers nor ends.
        """
        lock = daemon_lock(environ)
        end = time.monotonic() + PATIENCE_S
        while not lock.acquire():
            pid, path = recorded(lock)
            if path is not None and answers(path):
                raise AlreadyRunning(pid, path)
            if time.monotonic() > end:
                raise platform.Unusable(
                    f"{lock.path}: held by pid {pid}, which does not answer; end it first"
                )
            time.sleep(0.05)
        try:
            return cls(lock, *platform.listen(environ), environ)
        except platform.Unusable:
            lock.release()
            raise

    def owned(self) -> bool:
        """Is our lock still the one that others look at? If not, somebody else may be the daemon."""
        return self._lock.holds()

    def reachable(self) -> bool:
        """Is our socket still where we put it?"""
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def renew(self) -> None:
        """Listen anew after a cleaner took the socket. Raises Unusable."""
        self.listener.close()
        self._take(*platform.listen(self._environ))

    def withdraw(self) -> None:
        """No longer to be found; the lock stays until the process has freed its models."""
        self.listener.close()
        if self.reachable():
            self.path.unlink(missing_ok=True)

    def release(self) -> None:
        self.withdraw()
        self._lock.release()
