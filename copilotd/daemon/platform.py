"""All that differs between operating systems and machines: folders, sockets, peers, detached processes.

The daemon's key is (uid, wire protocol). Its socket lies in the first of `$XDG_RUNTIME_DIR`,
`/run/user/UID` and our folder in the user's cache, named by host, that is ours and usable. A process whose
environment differs looks in all of them, and in the lock file, which names the socket that is in use.
`COPILOTD_HOME` puts all of it under one folder instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs

from copilotd.wire import PROTOCOL

SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""the longest path of a Unix socket"""


class Unsupported(Exception):
    """This operating system lacks what copilotd needs. The message says what to do."""


class Unusable(Exception):
    """A folder or a path cannot be used. The message names it and the reason."""


def require_supported() -> None:
    """Raises Unsupported where there are no Unix sockets or no file locks."""
    if sys.platform == "win32" or not hasattr(socket, "AF_UNIX"):
        raise Unsupported(
            "copilotd needs Unix sockets and does not run on native Windows. "
            "Run the editor and copilotd inside WSL 2."
        )


def key() -> str:
    return f"{os.getuid()}-{PROTOCOL}"


def host() -> str:
    """The machine's name as part of a file name: home folders may be shared between machines."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()) or "host"


# ---- folders ---------------------------------------------------------------------------------------------


def socket_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where the socket may lie, best first. Whether it is safe there is not yet looked at."""
    if home := environ.get("COPILOTD_HOME"):
        return [Path(home) / "run"]
    runtime = [Path(p) for p in (environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}") if p]
    folders = [folder / "copilotd" for folder in runtime if folder.is_absolute() and folder.is_dir()]
    return list(dict.fromkeys([*folders, cache_folder(environ) / host()]))


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Logs, and the working directory of every process of ours."""
    home = environ.get("COPILOTD_HOME")
    return Path(home) / "state" if home else platformdirs.user_state_path("copilotd")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return Path(home) / "cache" if home else platformdirs.user_cache_path("copilotd")


def log_path(environ: Mapping[str, str] = os.environ) -> Path:
    return state_folder(environ) / f"daemon-{host()}.log"


def private_folder(path: Path) -> Path:
    """The folder, 0700, made if it was missing. Raises Unusable if it is not ours or others may write."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
    check_folder(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def check_folder(path: Path) -> None:
    """Raises Unusable unless the folder and the one above it are safe to keep a socket in."""
    try:
        own, parent = path.lstat(), path.parent.stat()
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(own.st_mode):
        raise Unusable(f"{path}: not a folder")
    if own.st_uid != os.getuid():
        raise Unusable(f"{path}: belongs to another user")
    if own.st_mode & 0o022:
        raise Unusable(f"{path}: other users may write to it (mode {stat.S_IMODE(own.st_mode):o}, not 700)")
    if parent.st_uid not in (os.getuid(), 0):
        raise Unusable(f"{path.parent}: belongs to another user")
    if parent.st_mode & 0o002 and not parent.st_mode & stat.S_ISVTX:
        raise Unusable(f"{path.parent}: every user may write to it")


def lock_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the lock lies: the folder that depends least on the environment and is usable."""
    problems: list[str] = []
    for folder in reversed(socket_folders(environ)):
        try:
            return private_folder(folder)
        except Unusable as problem:
            problems.append(str(problem))
    raise Unusable("no folder for copilotd's lock: " + "; ".join(problems))


def socket_path(folder: Path) -> Path:
    """The socket in a folder. Too long a path is replaced by a hash of it in a folder of ours in /tmp."""
    path = folder / f"{key()}.sock"
    encoded = os.fsencode(path)
    if len(encoded) <= SOCKET_PATH_BYTES:
        return path
    return Path(f"/tmp/copilotd-{os.getuid()}") / f"{hashlib.sha256(encoded).hexdigest()[:32]}.sock"


# ---- sockets ---------------------------------------------------------------------------------------------


def listen(environ: Mapping[str, str] = os.environ) -> tuple[socket.socket, Path, list[str]]:
    """A listening socket in the first usable place, its path, and what was wrong with better places.

    The caller holds the lock, so a socket that refuses connections is left over and is removed. Anything
    else that is in the way is left alone. Raises Unusable when no place is left.
    """
    problems: list[str] = []
    for folder in socket_folders(environ):
        try:
            path = socket_path(private_folder(folder))
            private_folder(path.parent)
            return _listen_at(path), path, problems
        except Unusable as problem:
            problems.append(str(problem))
    raise Unusable("no place for copilotd's socket: " + "; ".join(problems))


def _listen_at(path: Path) -> socket.socket:
    _remove_left_over(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(str(path))
        path.chmod(0o600)
        server.listen(128)
    except OSError as error:
        server.close()
        raise Unusable(f"{path}: {error.strerror}") from None
    return server


def _remove_left_over(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise Unusable(f"{path}: something that is not a socket of ours is in the way; please move it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except OSError as error:
            raise Unusable(f"{path}: {error}") from None
        else:
            raise Unusable(f"{path}: another process answers there")


def peer_uid(connection: socket.socket) -> int | None:
    """The uid at the other end; None where the system does not tell (the folder's mode must do)."""
    if sys.platform == "darwin":
        level, option, form = 0, 1, "II"  # SOL_LOCAL, LOCAL_PEERCRED: version, uid
    elif hasattr(socket, "SO_PEERCRED"):
        level, option, form = socket.SOL_SOCKET, socket.SO_PEERCRED, "iII"  # pid, uid, gid
    else:
        return None
    words = struct.unpack(form, connection.getsockopt(level, option, struct.calcsize(form)))
    return int(words[1])


def is_ours(connection: socket.socket) -> bool:
    return peer_uid(connection) in (os.getuid(), None)


# ---- processes -------------------------------------------------------------------------------------------


def serve_command() -> list[str]:
    """Starts a daemon, isolated from whatever folder the caller stands in."""
    return [sys.executable, "-P", "-m", "copilotd", "serve", "--detach"]


def spawn(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, in `folder`, with stdout as a pipe and nothing else of ours."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        umask=0o077,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def detach() -> None:
    """Go on as a process that is nobody's child. Called before there are threads."""
    if os.fork():
        os._exit(0)
    os.setsid()


# ---- power -----------------------------------------------------------------------------------------------


def on_battery(supplies: Path = Path("/sys/class/power_supply")) -> bool:
    """Is there a mains plug, and none is in? False where the system does not tell."""
    plugs = [file.parent for file in supplies.glob("*/type") if _word(file) == "Mains"]
    return bool(plugs) and all(_word(plug / "online") == "0" for plug in plugs)


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
