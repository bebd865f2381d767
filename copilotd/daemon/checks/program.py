"""The program itself: Python, libraries, settings."""

from __future__ import annotations

import os
import platform
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from copilotd import config
from copilotd.daemon.checks.finding import Finding, failed, ok, warning
from copilotd.version import version

LOCAL = ("torch", "transformers", "tokenizers", "safetensors", "bitsandbytes", "numpy")
"""what running models here takes"""
BITSANDBYTES = (0, 50)
"""the first with a fused NF4 kernel for processors, and small steps on a GPU"""


def check_program() -> Iterator[Finding]:
    yield ok("copilotd", f"{version()}, Python {platform.python_version()}, {sys.prefix}")


def check_libraries(*, local: bool) -> Iterator[Finding]:
    """`local`: models run on this machine; else a server runs them and none of these is needed."""
    there = {name: found for name in LOCAL if (found := installed(name))}
    if not local:
        yield ok("libraries", f"none needed: a server writes (here are {_listed(there) or 'none'})")
        return
    if missing := [name for name in LOCAL if name not in there and name != "bitsandbytes"]:
        yield failed(
            "libraries",
            f"{', '.join(missing)} not installed",
            "python3 -m pip install '/path/to/copilotd[local]' into the same environment, then `copilotd reload`",
        )
        return
    yield ok("libraries", _listed(there))
    found = there.get("bitsandbytes", "")
    if not found or _numbers(found) < BITSANDBYTES:
        wanted = ".".join(map(str, BITSANDBYTES))
        yield warning(
            "bitsandbytes",
            f"{found or 'not installed'}: quantisation nf4 needs {wanted} or newer",
            f"python3 -m pip install 'bitsandbytes>={wanted}', then `copilotd reload`",
        )


def installed(package: str) -> str:
    """Its version; "" if it is not installed. Nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


# ---- settings ----------------------------------------------------------------------------------------------


def read_settings() -> tuple[config.Loaded, list[Finding]]:
    """The settings in force, the defaults where they cannot be read, and what is to be said of them."""
    files = (config.system_file(), config.user_file())
    findings = [finding for file in files for finding in _safe(file)]
    try:
        loaded = config.load()
    except config.SettingsError as error:
        broken = failed("settings", str(error), "Mend the file, then run `copilotd reload`")
        return config.Loaded(), [broken, *findings]
    findings += [warning("settings", problem, _remedy(problem)) for problem in loaded.problems]
    there = [str(file) for file in files if file.is_file()]
    said = sorted(f"{key} from {source}" for key, source in loaded.sources.items())
    text = f"{' and '.join(there) or 'no file, all defaults'}" + (f"; {', '.join(said)}" if said else "")
    return loaded, [ok("settings", text), *findings]


def _remedy(problem: str) -> str:
    if "no such setting" in problem:  # what was probably meant stands there too
        return "It does nothing: correct its name or remove it, then run `copilotd reload`"
    return "The default is in force: mend the value, then run `copilotd reload`"


def _safe(file: Path) -> Iterator[Finding]:
    """Whoever may write the settings may choose what the daemon loads."""
    try:
        found = file.stat()
    except OSError:
        return
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield warning(
            "settings",
            f"other users may write {file} (mode {stat.S_IMODE(found.st_mode):o})",
            f"chmod go-w {file}, and see that it belongs to you",
        )
