"""The daemon's place: socket, folders, disk, and the daemon that runs there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from copilotd.daemon import platform
from copilotd.daemon.checks.finding import Finding, failed, ok, skipped, warning
from copilotd.daemon.launch import find
from copilotd.daemon.status import Status
from copilotd.models.store import models_folder
from copilotd.version import newer
from copilotd.version import version as own_version
from copilotd.wording import plural

LEAST_FREE = 1_000_000_000
"""bytes on a disk that logs, caches and a small model are at ease with"""


async def check_socket() -> list[Finding]:
    if named := os.environ.get("COPILOTD_SOCKET"):
        return [ok("socket", f"{named}, by COPILOTD_SOCKET: nothing is started or replaced there")]
    problems = []
    try:
        found = await find()
    except platform.Unusable as problem:
        return [failed("socket", str(problem), _MEND)]
    if found is not None:
        return [_running(found.path, found.version)]
    for folder in platform.socket_folders():
        try:
            path = platform.socket_path(folder)
            for place in {folder, path.parent}:
                _usable(place)
        except platform.Unusable as problem:
            problems.append(str(problem))
            continue
        free = ok("socket", f"a daemon would listen at {path}")
        unsafe = [warning("socket", problem, _MEND) for problem in problems]
        return [*unsafe, free]
    return [failed("socket", "no place for it: " + "; ".join(problems), _MEND)]


_MEND = "Make that folder yours alone (chown, chmod 700), or name another in COPILOTD_HOME"


def _usable(folder: Path) -> None:
    """Raises Unusable, as starting a daemon would; makes nothing."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if existing == folder:
        platform.check_folder(folder)
    elif not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise platform.Unusable(f"{folder}: cannot be made in {existing}")


def _running(path: Path, version: str) -> Finding:
    if newer(own_version(), version):
        return warning(
            "socket",
            f"{path}: its daemon is older ({version}) than this program",
            "Run `copilotd stop`; the next keystroke starts the newer one",
        )
    about, folder = path.stat(), path.parent.stat()
    modes = f"mode {stat.S_IMODE(about.st_mode):o} in {stat.S_IMODE(folder.st_mode):o}"
    if about.st_uid != os.getuid() or folder.st_mode & 0o077:
        return warning("socket", f"{path}, {modes}, owner {about.st_uid}: not yours alone", _MEND)
    return ok("socket", f"{path}, {modes}, yours")


def check_daemon(status: Status | None) -> Iterator[Finding]:
    log = platform.log_path()
    if status is None:
        yield skipped(
            "daemon", f"does not run: an editor starts it, and so does `copilotd explain`. Log: {log}"
        )
        return
    about = (
        f"pid {status.pid}, up {status.uptime_s / 60:.0f} min, {plural(status.clients, 'editor')}, "
        f"{plural(status.documents, 'document')}"
    )
    if status.state == "failed":
        yield failed(
            "daemon",
            f"{about}: {status.message or status.last_error}",
            f"Mend that, then run `copilotd reload`. Log: {status.log_path}",
        )
    elif status.last_error:
        yield warning(
            "daemon",
            f"{about}, {status.state}; it has met an error: {status.last_error}",
            f"Look into {status.log_path}; `copilotd reload` loads the models anew",
        )
    else:
        yield ok("daemon", f"{about}, {status.state}. Log: {status.log_path}")


def check_disk() -> Iterator[Finding]:
    places = {
        "state": platform.state_folder(),
        "cache": platform.cache_folder(),
        "models": models_folder(),
    }
    seen: set[int] = set()
    for what, folder in places.items():
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            yield warning(
                "disk",
                f"{folder} ({what}) cannot be written",
                f"Give yourself the right to write {existing}, or name another place in COPILOTD_HOME",
            )
            continue
        if existing.stat().st_dev in seen:
            continue
        seen.add(existing.stat().st_dev)
        free = shutil.disk_usage(existing).free
        text = f"{free / 1e9:.1f} GB free for {folder} ({what})"
        if free < LEAST_FREE:
            yield warning("disk", text, "Make room: logs, caches and models need some")
        else:
            yield ok("disk", text)
