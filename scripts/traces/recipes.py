"""The traces of this repository: which release, which file, what is typed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from pair.sources import Package, fetch, members

from traces.edits import Step, Write, copied, steps, typed_again
from traces.making import Scene

Lines = tuple[int, int]
"""first and last, from 1"""


class Release(Struct, frozen=True):
    """A package, at whatever version."""

    registry: Literal["pypi", "npm", "debian"]
    name: str
    licence: str

    def files(self, version: str, cache: Path) -> dict[str, str]:
        """path -> text, "\\n" line ends. Raises LicenceError if its metadata names another licence."""
        package = Package(
            registry=self.registry, name=self.name, version=version, licence=self.licence, sdist=False
        )
        folder = cache / "packages" / f"{self.name.replace('/', '-')}-{version}"
        archives = [a for a in fetch(package, folder, "bookworm") if ".debian.tar." not in a.name]
        return {path: text.replace("\r\n", "\n") for archive in archives for path, text in members(archive)}


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """One trace. Exactly one of `since`, `again`, `copy` says what is typed."""

    name: str
    registry: Literal["pypi", "npm", "debian"]
    package: str
    version: str
    licence: str
    path: str
    kind: Literal["fresh", "edit"]
    since: str = ""
    """an older version: the differences of the file are typed"""
    again: Lines | None = None
    """these lines are typed again"""
    copy: tuple[Lines, Lines] | None = None
    """the second lines come about by copying the first and changing what differs"""
    rename: tuple[str, str] | None = None
    """the first word becomes the second wherever it stands"""
    keep: Lines | None = None
    """only these lines of the file are in the trace"""
    beside: tuple[str, ...] = ()
    """other files of the release in the workspace; the first is open too"""

    def scene(self, cache: Path) -> Scene:
        release = Release(self.registry, self.package, self.licence)
        files = release.files(self.version, cache)
        text = _kept(files[self.path], self.keep)
        shift = self.keep[0] - 1 if self.keep else 0
        old, done = self._steps(text, release, cache, shift)
        beside = {path: files[path] for path in self.beside}
        return Scene(self.name, self.path, old, done, beside, self.beside[:1])

    def _steps(self, text: str, release: Release, cache: Path, shift: int) -> tuple[str, list[Step]]:
        if self.since:
            before = _kept(release.files(self.since, cache)[self.path], self.keep)
            return before, steps(before, text)
        if self.again:
            return typed_again(text, self.again[0] - shift, self.again[1] - shift)
        if self.copy:
            original, adapted = ((a - shift, b - shift) for a, b in self.copy)
            return copied(text, original, adapted)
        if self.rename:
            return text, renamed(text, *self.rename)
        raise ValueError(f"{self.name}: nothing is typed")


def renamed(text: str, old: str, new: str) -> list[Step]:
    """The word typed over wherever it stands, top to bottom, as a hand without a refactoring tool does."""
    places = [match.start() for match in re.finditer(rf"\b{re.escape(old)}\b", text)]
    grown = len(new) - len(old)
    return [Write(place + number * grown, len(old), new) for number, place in enumerate(places)]


def _kept(text: str, lines: Lines | None) -> str:
    if lines is None:
        return text
    return "".join(text.splitlines(keepends=True)[lines[0] - 1 : lines[1]])


def read(file: Path) -> list[Recipe]:
    """Raises msgspec.ValidationError for a recipe that cannot be."""
    return msgspec.toml.decode(file.read_bytes(), type=dict[str, list[Recipe]])["traces"]
