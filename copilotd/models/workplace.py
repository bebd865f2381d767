"""The folder of models, held by one program at a time while it changes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from copilotd.models.wheel import PullError


@contextmanager
def alone(models: Path) -> Iterator[None]:
    """The folder, made 0700 if it was missing, for this program only. Raises PullError, OSError."""
    import fcntl  # not on Windows, where asking whether a model is present must still work

    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (models / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PullError("another `copilotd pull` is running; wait for it to end") from None
        yield


def require_space(folder: Path, needed: int) -> None:
    """Raises PullError where the disk has less free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"the disk of {folder} has {free / 1e6:.0f} MB free and {needed / 1e6:.0f} MB are needed; "
            "make room and pull again"
        )


def flush(directory: Path) -> None:
    """Onto the disk with a folder's files and its list of names, so that a power cut keeps the order."""
    for path in [*(path for path in directory.iterdir() if path.is_file()), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def put_in_place(made: Path, folder: Path) -> None:
    """Rename a finished folder, its files flushed, to its place; what stood there goes at the very end."""
    flush(made)
    replaced = made.with_name(f"{made.name}.replaced")
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        folder.rename(replaced)
    made.rename(folder)
    flush(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)
