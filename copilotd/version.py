"""Which copilotd this is, and which of two is newer.

An installed release is its number. A development install (the package lies in its checkout) adds the time
of its newest source and a hash of all sources, `0.1.0+dev.1700000000.1a2b3c4d`, so that a daemon running
older sources is replaced and two checkouts never replace each other in turns.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from copilotd import __version__


@cache
def version() -> str:
    """The version of the code as it lies on disk when this process first asks."""
    package = Path(__file__).parent
    if not (package.parent / "pyproject.toml").is_file():
        return __version__
    return development_version(package)


def development_version(package: Path) -> str:
    digest = hashlib.sha256()
    newest = 0
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes())
        newest = max(newest, int(source.stat().st_mtime))
    return f"{__version__}+dev.{newest}.{digest.hexdigest()[:8]}"


def newer(one: str, other: str) -> bool:
    """Is `one` to replace `other`? Never both ways round, and never on words that are no version."""
    return _order(one) > _order(other)


def _order(text: str) -> tuple[tuple[int, ...], int]:
    match = re.fullmatch(r"(\d+(?:\.\d+)*)[^+]*(?:\+dev\.(\d+)\.[0-9a-f]+)?", text)
    if match is None:
        return (), 0
    return tuple(int(part) for part in match[1].split(".")), int(match[2] or 0)
