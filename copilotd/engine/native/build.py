"""The kernels as a shared library, compiled once for this very processor.

It is kept in our own cache folder. `python -m copilotd.engine.native.build` compiles it into the environment
copilotd is installed in, so that the first start need not.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
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
SEAL = hashlib.sha256().digest_size
"""bytes behind the library, of all before them"""


class CannotBuild(Exception):
    """The message says why, for the person."""


class NoKernels(CannotBuild):
    """Nor would anything that the person could do help."""


def root(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return (Path(home) / "cache" if home else platformdirs.user_cache_path("copilotd")) / "kernels"


def installed() -> Path:
    """The folder within the environment copilotd runs in."""
    return Path(sys.prefix) / "share" / "copilotd" / "kernels"


def built(folder: Path | None = None) -> Path:
    """The library: kept, or compiled now into `folder`, in some seconds. Raises CannotBuild."""
    folder = folder or root()
    library, compiler = found(folder)
    if compiler:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            _require_ours(folder)
            _compile(compiler, library)
        except OSError as error:
            raise CannotBuild(f"{folder}: {error.strerror}") from None
    return library


def found(folder: Path | None = None) -> tuple[Path, str]:
    """The library, and the compiler that `built` would make it with; "": it is there. Raises CannotBuild where it
    can be neither found nor made, as far as that is known without trying."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NoKernels(f"there are no kernels for {platform.machine()} processors")
    name = f"{_key()}.so"
    folder = folder or root()
    try:
        for library in (installed() / name, folder / name):
            if _ours(library.parent) and _ours(library) and _whole(library):
                return library, ""
        compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
        if compiler is None:
            raise CannotBuild("there is no C compiler: install gcc or clang")
        if folder.exists():
            _require_ours(folder)
    except OSError as error:
        raise CannotBuild(f"{folder}: {error.strerror}") from None
    return library, compiler


def usable() -> bool:
    """Whether the library is there, or a compiler for it."""
    try:
        found()
    except CannotBuild:
        return False
    return True


def _require_ours(folder: Path) -> None:
    if not _ours(folder):
        raise CannotBuild(f"{folder} could be written by others: remove it")


def _ours(path: Path) -> bool:
    """There, and nobody else could have written it: it will be executed."""
    try:
        state = path.lstat()
    except (FileNotFoundError, PermissionError):
        return False
    return state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o022


def _whole(library: Path) -> bool:
    """As it was compiled: what is loaded from a file that was cut short ends the process later."""
    content = library.read_bytes()
    return content[-SEAL:] == hashlib.sha256(content[:-SEAL]).digest()


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
        with part.open("rb+") as file:
            file.write(hashlib.sha256(file.read()).digest())
            os.fsync(file.fileno())
        part.chmod(0o755)
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


def _key() -> str:
    """Of all that the library depends on: the same folder may be seen by machines with other processors."""
    words = hashlib.sha256(repr((FLAGS, _processor())).encode())
    for source in sorted(SOURCES.iterdir()):
        words.update(source.name.encode() + source.read_bytes())
    return words.hexdigest()[:32]


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return line
    return platform.processor()


if __name__ == "__main__":
    try:
        print(built(installed()))  # noqa: T201
    except CannotBuild as error:
        sys.exit(f"copilotd runs by torch's kernels: {error}")
