"""What the index of the workspace depends on."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from copilotd.config import DaemonSettings
from copilotd.daemon.checks.finding import Finding, ok, skipped, warning
from copilotd.daemon.status import Status
from copilotd.wording import plural

LIMITS = Path("/proc/sys/fs/inotify")
LEAST_WATCHES = 16_384
"""one for each folder of all workspaces, the editor's own besides"""


def check_index(settings: DaemonSettings, status: Status | None) -> Iterator[Finding]:
    if not settings.index:
        yield skipped("index", "index = false in the settings: nothing is copied from other files")
    elif status is None or not status.index.folders:
        yield skipped("index", "no folder is open")
    else:
        index = status.index
        left_out = ", ".join(f"{number} {reason}" for reason, number in sorted(index.skipped.items()))
        yield ok(
            "index",
            f"{plural(index.folders, 'folder')}, {plural(index.files, 'file')}, "
            f"{plural(index.tokens, 'token')}; left out: {left_out or 'none'}",
        )


def check_watches(limits: Path = LIMITS) -> Iterator[Finding]:
    if sys.platform != "linux":
        yield skipped("watches", f"{sys.platform}: folders are looked at every few seconds")
        return
    watches, instances = (_number(limits / name) for name in ("max_user_watches", "max_user_instances"))
    text = f"inotify: {watches} watches and {instances} instances for each user"
    if problem := _no_instance():
        yield warning(
            "watches",
            f"{text}; {problem}, so changed files are noticed seconds late",
            "sudo sysctl fs.inotify.max_user_instances=1024 (and in /etc/sysctl.d to keep it)",
        )
    elif 0 < watches < LEAST_WATCHES:
        yield warning(
            "watches",
            f"{text}: too few for large workspaces, whose changed files are then noticed seconds late",
            "sudo sysctl fs.inotify.max_user_watches=524288 (and in /etc/sysctl.d to keep it)",
        )
    else:
        yield ok("watches", text)


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _no_instance() -> str:
    """Why the kernel gives this user no further inotify instance; "" if it does."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
        return ""
    return f"no instance is left ({errno.errorcode.get(ctypes.get_errno(), 'unknown error')})"
