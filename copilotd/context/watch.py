"""Which folders changed: told by the kernel, or found out by asking again and again.

One kernel instance and one watch a folder, for the folders that were walked and no other: watchdog's
recursive observer would watch ignored folders too, and one observer a folder would take a thread each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

QUIET_S = 0.3
"""A batch is ready when nothing happened for so long …"""

LATEST_S = 2.0
"""… or so long after its first event."""

POLL_S = 5.0

_MASK = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_ONLYDIR
)


class Batch:
    """Folders with changes, handed out once they have settled, so that a checkout is one batch. Thread-safe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wake: Callable[[], None] = lambda: None
    ) -> None:
        """`wake` is called, on any thread, when there is something to wait for."""
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._folders: set[str] = set()
        self._first = self._last = 0.0
        self._overflowed = False

    def add(self, folder: str) -> None:
        with self._lock:
            now = self._clock()
            waited_for = bool(self._folders)
            if not waited_for:
                self._first = now
            self._last = now
            self._folders.add(folder)
        if not waited_for:
            self._wake()

    def overflow(self) -> None:
        """The kernel lost events: whatever is watched may have changed."""
        self._overflowed = True
        self._wake()

    def wait_s(self) -> float | None:
        """Until the batch may be ready; None while there is nothing in it."""
        with self._lock:
            if self._overflowed:
                return 0.0
            if not self._folders:
                return None
            return max(0.0, min(self._last + QUIET_S, self._first + LATEST_S) - self._clock())

    def take(self) -> set[str]:
        """The settled folders, else none."""
        with self._lock:
            now = self._clock()
            if self._folders and (now - self._last >= QUIET_S or now - self._first >= LATEST_S):
                settled, self._folders = self._folders, set()
                return settled
            return set()

    def take_overflow(self) -> bool:
        overflowed, self._overflowed = self._overflowed, False
        return overflowed


class Watcher(Protocol):
    def watch(self, folder: str) -> None:
        """Raises OSError where the system's limit is reached."""
        ...

    def unwatch(self, folder: str) -> None: ...

    def due(self) -> set[str]:
        """Folders to list again now."""
        ...

    def wait_s(self) -> float | None:
        """Until something may be due; None until `descriptor` says so."""
        ...

    @property
    def descriptor(self) -> int | None:
        """Readable when there is something new to wait for."""
        ...

    def close(self) -> None: ...


class KernelWatcher:
    """inotify, through watchdog. Raises OSError where there is none."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._batch = Batch(wake=lambda: os.eventfd_write(self.descriptor, 1))
        self._watches: dict[str, WatchDescriptor] = {}
        self._kernel = InotifyFD()
        self._kernel.start()

    def watch(self, folder: str) -> None:
        if folder not in self._watches:
            callback = _Folder(folder, self._batch)
            self._watches[folder] = self._kernel.add_callback(folder.encode(), _MASK, callback, _ID)

    def unwatch(self, folder: str) -> None:
        descriptor = self._watches.pop(folder, None)
        if descriptor is not None:
            self._kernel.remove_callbacks([(descriptor, _ID)])

    def due(self) -> set[str]:
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        if self._batch.take_overflow():
            self._batch.take()
            return set(self._watches)
        return self._batch.take()

    def wait_s(self) -> float | None:
        return self._batch.wait_s()

    def close(self) -> None:
        self._kernel.stop()
        self._kernel.join(5)
        if not self._kernel.is_alive():
            os.close(self.descriptor)


_ID = CallbackId(0)


class _Folder:
    def __init__(self, folder: str, batch: Batch) -> None:
        self._folder = folder
        self._batch = batch

    def on_event(self, event: InotifyEvent) -> None:
        self._batch.add(self._folder)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        self._batch.add(self._folder)

    def on_queue_overflow(self) -> None:
        self._batch.overflow()


class PollingWatcher:
    """Every folder is due every few seconds."""

    descriptor = None

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folders: set[str] = set()
        self._next = clock() + POLL_S

    def watch(self, folder: str) -> None:
        self._folders.add(folder)

    def unwatch(self, folder: str) -> None:
        self._folders.discard(folder)

    def due(self) -> set[str]:
        if self._clock() < self._next:
            return set()
        self._next = self._clock() + POLL_S
        return set(self._folders)

    def wait_s(self) -> float | None:
        return max(0.0, self._next - self._clock()) if self._folders else None

    def close(self) -> None:
        self._folders.clear()
