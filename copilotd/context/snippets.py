"""Which pieces of other files a reader would want to see: definitions of names used, what was just edited."""

from __future__ import annotations

import os
import re
from collections import defaultdict, deque
from collections.abc import Callable

from copilotd.context.definitions import definitions, snippet
from copilotd.context.messages import Ask, Snippet
from copilotd.context.tree import language_of

MAX_SNIPPETS = 6
MAX_CANDIDATES = 3
"""A name defined in more places says little about which one is meant."""

UNREADABLE = re.compile("[\0\ufeff\ufffd]")
"""What stands there was read in a wrong encoding, or is no text."""

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

    def others(self, path: str) -> list[tuple[str, str]]:
        """Path and text of those in other files."""
        return [(one, text) for one, _, text in self._recent if one != path]


def choose(
    ask: Ask,
    places: Places,
    edits: Edits,
    visible: Callable[[str], bool],
    readable: Callable[[str], str | None],
    relative: Callable[[str], str],
) -> tuple[Snippet, ...]:
    """At most six, in a stable order: by path and line, so that the prompt's first part stays the same.

    `visible` says whether the session may see a file, or a buffer among the places; `readable` gives its
    text, if it still can. Nothing is chosen where nothing scores, and no line twice.
    """
    chosen: list[tuple[str, Snippet]] = []
    language = language_of(ask.path)

    def offer(path: str, line: int, text: str, reason: str) -> None:
        """Unless it says nothing new; of two that share lines the longer one stays."""
        if not text or text in ask.known or UNREADABLE.search(text):
            return
        file, new = _file(path), Snippet(relative(path), line, text, reason)
        shared = [old for old in chosen if old[0] == file and _lines(old[1]) & _lines(new)]
        if all(len(_lines(old)) < len(_lines(new)) for _, old in shared):
            chosen[:] = [old for old in chosen if old not in shared] + [(file, new)]

    for path, text in edits.others(ask.path)[:2]:
        whole = readable(path)
        if whole is not None and (at := whole.find(text)) >= 0:  # else undone, or thrown away with its buffer
            offer(path, whole.count("\n", 0, at), text, "recent edit")
    for name in ask.names:
        if len(chosen) >= MAX_SNIPPETS:
            break
        candidates = [
            (path, offset) for path, offset in places.of(name) if _file(path) != ask.path and visible(path)
        ]
        near = sorted(candidates, key=lambda place: _distance(ask.path, _file(place[0]), language))[
            :MAX_CANDIDATES
        ]
        if not near or len(candidates) > 4 * MAX_CANDIDATES:
            continue
        path, offset = near[0]
        whole = readable(path)
        if whole is not None:
            offer(path, whole.count("\n", 0, offset), snippet(whole, offset), "definition")
    return tuple(one for _, one in sorted(chosen, key=lambda each: (each[0], each[1].line)))


def _file(place: str) -> str:
    return place.rpartition("\0")[2]


def _lines(one: Snippet) -> set[int]:
    return set(range(one.line, one.line + one.text.count("\n") + 1))


def _distance(one: str, other: str, language: int) -> tuple[bool, int, str]:
    """Another language is farther than any folder; then steps through the tree."""
    shared = len(os.path.commonpath([one, other]).split(os.sep)) if one[:1] == other[:1] == "/" else 0
    return language_of(other) != language, len(other.split(os.sep)) - 2 * shared, other
