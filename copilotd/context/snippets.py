"""Which pieces of other files a reader would want to see: definitions of names used, what was just edited."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable

from copilotd.context.definitions import definitions, snippet
from copilotd.context.messages import Ask, Snippet
from copilotd.context.tree import language_of

MAX_SNIPPETS = 6
MAX_CANDIDATES = 3
"""A name defined in more places says little about which one is meant."""

MAX_EDITS = 16
MAX_EDIT_LINES = 12


class Places:
    """Where names are defined, over all files."""

    def __init__(self) -> None:
        self._by_name: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self._by_file: dict[str, list[tuple[str, int]]] = {}

    def add(self, path: str, text: str) -> None:
        self.remove(path)
        found = self._by_file[path] = list(definitions(text))
        for name, offset in found:
            self._by_name[name].add((path, offset))

    def remove(self, path: str) -> None:
        for name, offset in self._by_file.pop(path, ()):
            places = self._by_name[name]
            places.discard((path, offset))
            if not places:
                del self._by_name[name]

    def of(self, name: str) -> set[tuple[str, int]]:
        return self._by_name.get(name, set())


class Edits:
    """The regions a session changed last, newest first, one a file and place."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, int, str]] = deque(maxlen=MAX_EDITS)

    def changed(self, path: str, before: str, after: str) -> None:
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

    def others(self, path: str) -> list[tuple[str, int, str]]:
        return [edit for edit in self._recent if edit[0] != path]


def choose(
    ask: Ask,
    places: Places,
    edits: Edits,
    readable: Callable[[str], str | None],
    relative: Callable[[str], str],
) -> tuple[Snippet, ...]:
    """At most six, in a stable order: by path and line, so that the prompt's first part stays the same.

    `readable` gives a file's text if the session may see it. Nothing is chosen where nothing scores.
    """
    chosen: dict[tuple[str, int], Snippet] = {}
    language = language_of(ask.path)
    for path, line, text in edits.others(ask.path)[:2]:
        if text not in ask.known:
            chosen[path, line] = Snippet(relative(path), line, text, "recent edit")
    for name in ask.names:
        if len(chosen) >= MAX_SNIPPETS:
            break
        candidates = [(path, offset) for path, offset in places.of(name) if path != ask.path]
        near = sorted(candidates, key=lambda place: _distance(ask.path, place[0], language))[:MAX_CANDIDATES]
        if not near or len(candidates) > 4 * MAX_CANDIDATES:
            continue
        path, offset = near[0]
        whole = readable(path)
        if whole is None:
            continue
        text = snippet(whole, offset)
        line = whole.count("\n", 0, offset)
        if text and text not in ask.known and (path, line) not in chosen:
            chosen[path, line] = Snippet(relative(path), line, text, "definition")
    return tuple(chosen[place] for place in sorted(chosen))


def _distance(one: str, other: str, language: int) -> tuple[bool, int, str]:
    """Another language is farther than any folder; then steps through the tree."""
    shared = len(os.path.commonpath([one, other]).split(os.sep)) if one[:1] == other[:1] == "/" else 0
    return language_of(other) != language, len(other.split(os.sep)) - 2 * shared, other
