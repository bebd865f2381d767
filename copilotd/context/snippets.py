"""Which pieces of other files a reader would want to see: definitions of names used, what was just edited."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from typing import Protocol

from copilotd.context.definitions import definitions, outline, snippet
from copilotd.context.messages import Ask, Snippet
from copilotd.context.tree import language_of

MAX_SNIPPETS = 6
MAX_CANDIDATES = 3
"""A name defined in more places says little about which one is meant."""

UNREADABLE = re.compile("[\0\ufeff\ufffd]")
"""What stands there was read in a wrong encoding, or is no text."""

_NAMESPACE = re.compile(r"([A-Za-z_$][\w$]*)\s*(?:\.|::)|\bfrom\s+(?:[\w.]*\.)?(\w+)\s+import\b")
"""What stands before a dot, or what names are imported from."""

_OF_A_FOLDER = ("__init__", "index", "mod", "lib")
"""Modules that go by their folder's name."""

MAX_EDITS = 16
MAX_EDIT_LINES = 12


class Places:
    """Where names are defined, and which files are modules of a name, over all files."""

    def __init__(self) -> None:
        self._modules: dict[str, set[str]] = defaultdict(set)
        self._by_name: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._by_file: dict[str, list[tuple[str, int]]] = {}

    def add(self, path: str, text: str) -> None:
        self.remove(path)
        self._modules[_module(path)].add(path)
        found = self._by_file[path] = list(definitions(text))
        for name, offset in found:
            self._by_name[name].add((path, offset))

    def remove(self, path: str) -> None:
        self._modules[_module(path)].discard(path)
        if not self._modules[_module(path)]:
            del self._modules[_module(path)]
        for name, offset in self._by_file.pop(path, ()):
            places = self._by_name[name]
            places.discard((path, offset))
            if not places:
                del self._by_name[name]

    def of(self, name: str) -> set[tuple[str, int]]:
        return self._by_name.get(name, set())

    def modules(self, name: str) -> set[str]:
        return self._modules.get(name, set())


class Edits:
    """The regions a session changed last, newest first, one a file and place."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, int, str]] = deque(maxlen=MAX_EDITS)

    def changed(self, path: str, before: str, after: str) -> str:
        """Remember the region; what stood there and is gone."""
        old, new = before.split("\n"), after.split("\n")
        top = 0
        while top < min(len(old), len(new)) and old[top] == new[top]:
            top += 1
        bottom = 0
        while bottom < min(len(old), len(new)) - top and old[-1 - bottom] == new[-1 - bottom]:
            bottom += 1
        region = "\n".join(new[top : len(new) - bottom][:MAX_EDIT_LINES]).rstrip()
        for edit in list(self._recent):  # the same place, typed on
            if edit[0] == path and abs(edit[1] - top) <= MAX_EDIT_LINES:
                self._recent.remove(edit)
        if region.strip():
            self._recent.appendleft((path, top, region))
        gone, come = ("\n".join(lines[top : len(lines) - bottom]) for lines in (old, new))
        return "" if come.startswith(gone) else gone

    def others(self, path: str) -> list[tuple[str, str]]:
        """Path and text of those in other files."""
        return [(one, text) for one, _, text in self._recent if one != path]


class Sight(Protocol):
    """What one session may see. A file is named by its path, a buffer as it is among the places."""

    def visible(self, path: str) -> bool: ...

    def readable(self, path: str) -> str | None:
        """The text, if it can still be had."""
        ...

    def relative(self, path: str) -> str:
        """The path as a snippet shows it."""
        ...


def choose(ask: Ask, places: Places, edits: Edits, sight: Sight) -> tuple[Snippet, ...]:
    """At most six, in a stable order: by path and line, so that the prompt's first part stays the same.

    Nothing is chosen where nothing scores, and no line twice.
    """
    choice = _Choice(ask, places, sight)
    choice.recent(edits)
    choice.defined()
    choice.imported()
    return tuple(one for _, one in sorted(choice.chosen, key=lambda each: (each[0], each[1].line)))


class _Choice:
    def __init__(self, ask: Ask, places: Places, sight: Sight) -> None:
        self.chosen: list[tuple[str, Snippet]] = []
        """with the file that each is from"""
        self._ask, self._places, self._sight = ask, places, sight
        self._language = language_of(ask.path)

    def recent(self, edits: Edits) -> None:
        """The last edits elsewhere that still stand: not undone, not thrown away with their buffer."""
        for path, text in edits.others(self._ask.path)[:2]:
            whole = self._sight.readable(path)
            if whole is not None and (at := whole.find(text)) >= 0:
                self._offer(path, whole.count("\n", 0, at), text, "recent edit")

    def defined(self) -> None:
        """The definitions of names near the cursor."""
        for name in self._ask.names:
            if len(self.chosen) >= MAX_SNIPPETS:
                return
            places = [(path, offset) for path, offset in self._places.of(name) if self._may_show(path)]
            if not 0 < len(places) <= 4 * MAX_CANDIDATES:
                continue
            path, offset = min(places, key=lambda place: self._distance(place[0]))
            whole = self._sight.readable(path)
            if whole is not None:
                self._offer(path, whole.count("\n", 0, offset), snippet(whole, offset), "definition")

    def imported(self) -> None:
        """What modules hold that are imported from, or named before a dot."""
        spaces = {one or other for one, other in _NAMESPACE.findall(self._ask.known)}
        for name in self._ask.names:
            if len(self.chosen) >= MAX_SNIPPETS:
                return
            modules = [path for path in self._places.modules(name) if self._may_show(path)]
            same = [path for path in modules if language_of(_file(path)) == self._language]
            if name in spaces and 0 < len(same) <= MAX_CANDIDATES:
                path = min(same, key=self._distance)
                shown = {
                    line for at, one in self.chosen if at == _file(path) for line in one.text.split("\n")
                }
                lines = outline(self._sight.readable(path) or "").split("\n")
                self._take(path, 0, "\n".join(line for line in lines if line not in shown), "outline")

    def _may_show(self, path: str) -> bool:
        return _file(path) != self._ask.path and self._sight.visible(path)

    def _offer(self, path: str, line: int, text: str, reason: str) -> None:
        """Of two that share lines the longer one stays."""
        span = range(line, line + text.count("\n") + 1)
        shared = [
            (file, one) for file, one in self.chosen if file == _file(path) and set(_lines(one)) & set(span)
        ]
        if all(len(_lines(one)) < len(span) for _, one in shared) and self._take(path, line, text, reason):
            self.chosen = [each for each in self.chosen if each not in shared]

    def _take(self, path: str, line: int, text: str, reason: str) -> bool:
        """Unless it says nothing new."""
        if not text or text in self._ask.known or UNREADABLE.search(text):
            return False
        self.chosen.append((_file(path), Snippet(self._sight.relative(path), line, text, reason)))
        return True

    def _distance(self, place: str) -> tuple[bool, int, str]:
        """Another language is farther than any folder; then steps through the tree."""
        one, other = self._ask.path, _file(place)
        shared = len(os.path.commonpath([one, other]).split(os.sep)) if one[:1] == other[:1] == "/" else 0
        return language_of(other) != self._language, len(other.split(os.sep)) - 2 * shared, other


def _lines(one: Snippet) -> range:
    return range(one.line, one.line + one.text.count("\n") + 1)


def _file(place: str) -> str:
    return place.rpartition("\0")[2]


def _module(place: str) -> str:
    folder, _, name = _file(place).replace(":", "/").rpartition("/")
    stem = name.partition(".")[0]
    return os.path.basename(folder) if stem in _OF_A_FOLDER else stem
