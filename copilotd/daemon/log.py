"""The daemon's log: one rotating file, without a word of anybody's text.

An exception's message may hold source text, so of an exception only its type and the places in our own
code are written.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

PACKAGE = Path(__file__).resolve().parents[1]
BYTES = 1_000_000

log = logging.getLogger("copilotd")


def start_log(path: Path, level: str = "info") -> None:
    """Write the log to `path`, and what ends threads of ours too."""
    handler = RotatingFileHandler(path, maxBytes=BYTES, backupCount=3, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(level.upper())
    sys.excepthook = _end_of_main
    threading.excepthook = _end_of_thread


def place(error: BaseException) -> str:
    """`ValueError in daemon/server.py:12 < cli/serve.py:3`: the type, and where in our code."""
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if file.is_relative_to(PACKAGE):
            frames.append(f"{file.relative_to(PACKAGE)}:{frame.lineno}")
    return f"{type(error).__name__} in {' < '.join(reversed(frames)) or 'foreign code'}"


def catch_stray_output(path: Path) -> None:
    """Send file descriptors 1 and 2, and the stack of a crash in native code, to `path`.

    Libraries print; nobody reads a detached process's output. The file starts anew when it has grown.
    """
    grown = path.exists() and path.stat().st_size > BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if grown else 0)
    try:
        fd = os.open(path, flags, 0o600)
    except OSError:  # a full or read-only disk: completion is worth more than a log
        fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable(2)


def _end_of_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("the daemon ends: %s", place(error))


def _end_of_thread(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None:
        log.critical("a thread ends: %s", place(end.exc_value))
