"""The kernels as a shared library, compiled once for this very processor and kept in our own cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

SOURCES = Path(__file__).parent / "kernels"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=c11", "-O2", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra",
)  # fmt: skip
"""-ffp-contract=off: what is rounded once and what twice stands in the source, not in the compiler's taste"""
LIMIT_S = 120.0


class CannotBuild(Exception):
    """The message says why, for the person."""


def root(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return (Path(home) / "cache" if home else platformdirs.user_cache_path("copilotd")) / "kernels"


def built() -> Path:
    """The library, from the cache or compiled now, in some seconds. Raises CannotBuild."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CannotBuild(f"there are no kernels for {platform.machine()} processors")
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    folder = root()
    try:
        library = folder / f"{_key(compiler or '')}.so"
        if _ours(library):
            return library
        if compiler is None:
            raise CannotBuild("there is no C compiler: install gcc or clang")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(folder):
            raise CannotBuild(f"{folder} could be written by others: remove it")
        _compile(compiler, library)
    except OSError as error:
        raise CannotBuild(f"{folder}: {error.strerror}") from None
    return library


def _ours(path: Path) -> bool:
    """There, and nobody else could have written it: it will be executed."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return False
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def _compile(compiler: str, library: Path) -> None:
    part = library.with_suffix(f".{os.getpid()}")
    command = [compiler, *FLAGS, "-o", str(part), *map(str, sorted(SOURCES.glob("*.c")))]
    try:
        done = subprocess.run(
            command,
            cwd=library.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
            raise CannotBuild(f"{compiler} fails: {first}")
        part.chmod(0o700)
        part.replace(library)
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{compiler} takes more than {LIMIT_S:.0f} s") from None
    finally:
        with suppress(OSError):
            part.unlink()
    for old in library.parent.glob("*.so"):
        if old != library:
            with suppress(OSError):
                old.unlink()


def _key(compiler: str) -> str:
    """Of all that the library depends on: the same folder may be seen by machines with other processors."""
    words = hashlib.sha256(repr((compiler, FLAGS, _processor())).encode())
    for source in sorted(SOURCES.iterdir()):
        words.update(source.name.encode() + source.read_bytes())
    return words.hexdigest()[:32]


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return line
    return platform.processor()
