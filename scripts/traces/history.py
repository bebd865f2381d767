"""Blocks out of a git history that a developer names. `git` runs on that folder only, without its config."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct


class Changed(Struct, frozen=True):
    path: str
    old: str
    new: str


class Repository:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def commits(self, number: int) -> list[str]:
        """The last so many that are no merges."""
        return self._git("log", "--no-merges", "--format=%H", f"-n{number}").split()

    def changed(self, commit: str) -> Iterator[Changed]:
        """Files that the commit changed, as they were and as they became."""
        for line in self._git(
            "diff-tree", "-r", "--no-commit-id", "--root", "-z", "--diff-filter=AM", commit
        ).split(":")[1:]:
            kind, path = line.split("\0")[:2]
            status = kind.split()[4]
            old = "" if status == "A" else self._text(f"{commit}^", path)
            new = self._text(commit, path)
            if old is not None and new is not None:
                yield Changed(path, old, new)

    def files(self, commit: str) -> Iterator[tuple[str, str]]:
        """(path, text) of the files before the commit."""
        try:
            listed = self._git("ls-tree", "-r", "-z", "--name-only", f"{commit}^")
        except subprocess.CalledProcessError:  # the first commit
            return
        for path in listed.split("\0"):
            if path and (text := self._text(f"{commit}^", path)) is not None:
                yield path, text

    def _text(self, commit: str, path: str) -> str | None:
        try:
            return self._bytes("cat-file", "blob", f"{commit}:{path}").decode()
        except UnicodeDecodeError:
            return None

    def _git(self, *words: str) -> str:
        return self._bytes(*words).decode("utf-8", "surrogateescape")

    def _bytes(self, *words: str) -> bytes:
        # programs that a repository's configuration may name: none of them is needed to read objects
        command = ["git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C"]
        return subprocess.run([*command, str(self._folder), *words], capture_output=True, check=True).stdout
