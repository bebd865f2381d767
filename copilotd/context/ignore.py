"""git's ignore rules, read as text: no `git` is run, for a repository's config can name programs.

Follows gitignore(5): patterns of nested .gitignore files, of .git/info/exclude and of the global excludes,
the deeper file first, the last matching line of a file deciding; a file below an ignored folder is ignored
whatever stands deeper. `.copilotdignore` files count as .gitignore files that are read after them.
"""

from __future__ import annotations

import os
from pathlib import Path

from pathspec import GitIgnoreSpec

from copilotd.context.globs import compile_lines

FILES = (".gitignore", ".copilotdignore")
_MAX_BYTES = 1 << 20

ALWAYS = (
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".idea",
)
"""Folders that hold nothing a person wrote; never entered, whatever the ignore files say."""

_GENERATED = GitIgnoreSpec.from_lines(["target/", "dist/", "build/", "out/"])
"""The same by custom, where no repository says what is generated; an ignore file may say otherwise."""


class Ignore:
    """The rules in force in one folder of a walk: its own patterns and, through `parent`, those above."""

    def __init__(self, folder: str, parent: Ignore | None, specs: list[GitIgnoreSpec]) -> None:
        self._folder = folder
        self._parent = parent
        self._specs = specs

    @classmethod
    def root(cls, folder: Path) -> Ignore:
        """The rules at the top of a workspace folder, which may itself lie inside a repository."""
        excludes = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
        repository = _repository_above(folder)
        unsaid = [] if repository or (folder / ".git").exists() else [_GENERATED]
        above: Ignore | None = cls(str(folder), cls("", None, _read(excludes)), unsaid)
        for parent in repository:
            above = cls(str(parent), above, _read(parent / ".git" / "info" / "exclude") + _own(parent))
        return cls(str(folder), above, _read(folder / ".git" / "info" / "exclude") + _own(folder))

    def enter(self, folder: Path) -> Ignore:
        """The rules inside a subfolder. A nested repository starts anew, as git does."""
        if (folder / ".git").exists():
            return Ignore(str(folder), None, _read(folder / ".git" / "info" / "exclude") + _own(folder))
        specs = _own(folder)
        return Ignore(str(folder), self, specs) if specs else self

    def ignored(self, path: str, *, folder: bool) -> bool:
        """Whether an entry of a walked (so not ignored) folder is ignored. `path` is absolute."""
        rules: Ignore | None = self
        while rules is not None:
            relative = os.path.relpath(path, rules._folder) if rules._folder else path.lstrip("/")
            name = relative + "/" if folder else relative
            for spec in reversed(rules._specs):
                verdict = spec.check_file(name).include
                if verdict is not None:
                    return verdict
            rules = rules._parent
        return False


def _own(folder: Path) -> list[GitIgnoreSpec]:
    return [spec for name in FILES for spec in _read(folder / name)]


def _read(file: Path) -> list[GitIgnoreSpec]:
    try:
        if not file.is_file():
            return []
        with file.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return []
    spec = compile_lines(text.splitlines())
    return [spec] if spec.patterns else []


def _repository_above(folder: Path) -> list[Path]:
    """Folders from the repository's top down to the one above `folder`; none outside a repository."""
    if (folder / ".git").exists():
        return []
    for depth, parent in enumerate(folder.parents, 1):
        if (parent / ".git").exists():
            return list(reversed(folder.parents[:depth]))
    return []
