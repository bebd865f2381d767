"""Starts of the daemon that came to nothing, counted over all fronts, so that they are not repeated in a loop.

Each start is counted before it is tried; the daemon forgets them once it has shown that it can live.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from copilotd.daemon import platform

FREE = 3
"""so many starts follow each other without a pause"""
LONGEST_S = 300.0


class Attempts:
    """A file beside the lock, one byte a start; only touched by who holds the start lock, or the lock."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._file = platform.lock_folder(environ) / f"{platform.key()}.starts"
        self._forgotten = False

    def count(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def wait_s(self) -> float:
        """Seconds until the next start may be tried; 0 or less: now."""
        count = self.count()
        if count < FREE:
            return 0.0
        pause = min(2.0 ** (count - FREE), LONGEST_S)
        return min(self._file.stat().st_mtime + pause - time.time(), pause)  # clocks are set back

    def add(self) -> None:
        with self._file.open("a") as file:
            file.write(".")

    def forget(self) -> None:
        """By the daemon, which lives; once in its life is enough."""
        if not self._forgotten:
            self._forgotten = True
            self._file.unlink(missing_ok=True)
