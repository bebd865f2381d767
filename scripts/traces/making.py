"""A trace from an old text, the steps of a person, and the files around."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from msgspec import Struct

from copilotd.context.secrets import Secrets
from copilotd.replay.trace import Event, event_line, header_line
from traces.edits import Step
from traces.typist import Typist

LANGUAGES = {".py": "python", ".ts": "typescript", ".tsx": "typescript", ".java": "java", ".sql": "sql"}


def written_by_hand(path: str) -> bool:
    """Whether the name is that of a source in one of the languages, not of what a compiler or packer wrote."""
    return PurePosixPath(path).suffix in LANGUAGES and not re.search(
        r"\.d\.[mc]?ts$|(^|/)(dist|node_modules)/", path
    )


class Scene(Struct, frozen=True):
    """What is typed where."""

    name: str
    path: str
    old: str
    """the file as it was"""
    steps: Sequence[Step]
    files: dict[str, str] = {}
    """what else lies in the workspace"""
    opened: Sequence[str] = ()
    """of those, which are open too"""


def trace(scene: Scene, seed: int, most: int) -> bytes:
    """The lines of a trace of at most so many typed characters. Raises ValueError for secrets."""
    files = {scene.path: scene.old, **scene.files}
    secrets = Secrets()
    for path, text in files.items():
        if secrets.named(path) or secrets.marked(path, text):
            raise ValueError(f"{path} holds or names a secret")
    opened = [Event(t=0, open=path) for path in (*scene.opened, scene.path)]
    typist = Typist(scene.path, scene.old, seed)
    typist.type(scene.steps, most)
    end = Event(t=round(typist.now_ms) + 1000, close=scene.path)
    lines = (event_line(event) for event in (*opened, *typist.events, end))
    return header_line(scene.name, files) + b"".join(lines)


def write(folder: Path, scene: Scene, seed: int, most: int) -> Path:
    file = folder / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', scene.name)}.jsonl"
    file.write_bytes(trace(scene, seed, most))
    return file


def around(path: str, files: Iterable[tuple[str, str]], most: int, most_bytes: int) -> dict[str, str]:
    """Files of the same language, the nearest by folder first, up to so many and so many bytes each."""
    suffix, here = PurePosixPath(path).suffix, PurePosixPath(path).parent.parts
    secrets = Secrets()

    def distance(other: str) -> int:
        parts = PurePosixPath(other).parent.parts
        common = next(
            (i for i, (a, b) in enumerate(zip(here, parts, strict=False)) if a != b),
            min(len(here), len(parts)),
        )
        return len(here) + len(parts) - 2 * common

    wanted = [
        (name, text)
        for name, text in files
        if name != path
        and PurePosixPath(name).suffix == suffix
        and written_by_hand(name)
        and 0 < len(text) <= most_bytes
    ]
    nearest = sorted(wanted, key=lambda file: (distance(file[0]), file[0]))
    harmless = (
        (name, text) for name, text in nearest if not (secrets.named(name) or secrets.marked(name, text))
    )
    return dict(sorted(islice(harmless, most)))
