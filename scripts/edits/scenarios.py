"""Edit-heavy work drawn from real packages by a seed: what stands there, and what a person writes next.

Four kinds, drawn for every language:

- rename: an identifier used in several files gets another name; the other files are done, this one is next.
  Each of its lines is written from the name on, as somebody does who deletes to the line's end.
- copied: a definition whose nearest relative stands in another file is written below its first line.
- table: lines of one shape that name things other files know, written from the third on.
- test: a test in a file that has only just been begun, beside the code it tests.

A draw looks at the texts alone, never at what lookup would make of them.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import TypeAlias, TypeVar

from msgspec import Struct

from copilotd.context.definitions import definitions

KINDS = ("rename", "copied", "table", "test")
MOST_LINES = 40
"""written in one stretch"""
LONGEST_LINE = 200
"""characters; longer ones are data, which nobody types"""

_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_TEST = re.compile(r"(^|/)tests?/|(^|/)test_|[._-](test|spec)\.|Test\.java$|^contrib/\w+/sql/", re.IGNORECASE)

Files: TypeAlias = dict[str, str]
T = TypeVar("T")


class Stretch(Struct, frozen=True):
    """What the person writes in one go, between what stands before it and after it in the file."""

    before: str
    truth: str
    after: str
    gone: str = ""
    """the file as it was a moment ago, where something was deleted for it"""


class Scenario(Struct, frozen=True):
    package: str
    language: str
    kind: str
    path: str
    """the file that is written"""
    disk: Files
    """the other files"""
    stretches: tuple[Stretch, ...]


class Unit(Struct, frozen=True):
    """A definition in a file, by the lines' numbers."""

    path: str
    first: int
    end: int
    """of the line after its last"""
    lines: tuple[str, ...]


def drawn(package: str, language: str, files: Files, kind: str, seed: int) -> Iterator[Scenario]:
    """Scenarios in the seed's order, for ever new ones until there are no more."""
    order = random.Random(f"{package} {kind} {seed}")
    for scenario in _DRAWS[kind](package, language, files, order):
        lines = [line for stretch in scenario.stretches for line in stretch.truth.split("\n")]
        if max(map(len, lines)) <= LONGEST_LINE:
            yield scenario


# ---- a definition, copied and adapted ----------------------------------------------------------------------


def _copied(package: str, language: str, files: Files, order: random.Random) -> Iterator[Scenario]:
    units = [
        unit for path, text in sorted(files.items()) for unit in _units(path, text) if len(unit.lines) >= 8
    ]
    holding: dict[str, list[int]] = defaultdict(list)
    for number, unit in enumerate(units):
        for line in {line.strip() for line in unit.lines if len(line.strip()) >= 12}:
            holding[line].append(number)
    for number in _shuffled(range(len(units)), order):
        unit = units[number]
        shared = Counter(
            other
            for line in {line.strip() for line in unit.lines}
            if len(holding.get(line, ())) <= 40
            for other in holding.get(line, ())
        )
        relatives = [(units[other], n) for other, n in shared.most_common(8) if other != number and n >= 2]
        likeness = [(_likeness(unit, other), other.path != unit.path) for other, _ in relatives]
        nearest, elsewhere = max(likeness, default=(0.0, False))
        if elsewhere and 0.5 <= nearest <= 0.95:
            yield _written(package, language, "copied", files, unit.path, unit.first + 1, unit.end)


def _likeness(one: Unit, other: Unit) -> float:
    """Of their words and marks, in order."""
    mine, theirs = (re.findall(r"\w+|[^\w\s]", "\n".join(unit.lines[:MOST_LINES])) for unit in (one, other))
    return SequenceMatcher(None, mine, theirs, autojunk=False).ratio()


def _units(path: str, text: str) -> Iterator[Unit]:
    """Definitions with their blocks, by indentation; in SQL, statements by the blank line before the next."""
    lines = text.split("\n")
    starts = sorted({text.count("\n", 0, offset) for _, offset in definitions(text)})
    for first in starts:
        depth = _depth(lines[first])
        end = first + 1
        while end < len(lines) and (not lines[end].strip() or not _leaves(lines[end], depth, path)):
            end += 1
        if end < len(lines) and lines[end].strip()[:1] in tuple(")}]$"):
            end += 1
        while end > first and not lines[end - 1].strip():
            end -= 1
        yield Unit(path, first, end, tuple(lines[first:end]))


def _leaves(line: str, depth: int, path: str) -> bool:
    """Whether a line is no part of the block any more."""
    if path.endswith(".sql"):  # bodies are not indented
        return re.match(r"(?i)\s*(create|alter|grant|revoke|comment|drop|select)\b|\$", line) is not None
    return _depth(line) <= depth


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


# ---- a table of similar lines ------------------------------------------------------------------------------


def _table(package: str, language: str, files: Files, order: random.Random) -> Iterator[Scenario]:
    known = Counter(word for text in files.values() for word in set(_WORD.findall(text)))
    tables = [
        (path, first, end)
        for path, text in sorted(files.items())
        for first, end in _tables(text.split("\n"))
        if _names_others(text.split("\n")[first:end], known)
    ]
    for path, first, end in _shuffled(tables, order):
        yield _written(package, language, "table", files, path, first + 2, end)


def _tables(lines: list[str]) -> Iterator[tuple[int, int]]:
    first = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or not lines[at].strip() or _shape(lines[at]) != _shape(lines[first]):
            if at - first >= 8 and _WORD.search(lines[first]):
                yield first, at
            first = at


def _shape(line: str) -> str:
    """The marks in order; words, numbers and texts alike."""
    return re.sub(r"\w+", "w", re.sub(r"\"[^\"]*\"|'[^']*'", "w", line)).replace(" ", "")


def _names_others(lines: list[str], known: Counter[str]) -> bool:
    """Half of the lines have a word of their own that some other file knows, and no two are the same."""
    words = Counter(word for line in lines for word in set(_WORD.findall(line)))
    telling = [any(words[word] == 1 and known[word] >= 2 for word in _WORD.findall(line)) for line in lines]
    return sum(telling) * 2 >= len(lines) and len(set(lines)) == len(lines)


# ---- a test beside its code --------------------------------------------------------------------------------


def _test(package: str, language: str, files: Files, order: random.Random) -> Iterator[Scenario]:
    defined = {
        name for path, text in files.items() if not _TEST.search(path) for name, _ in definitions(text)
    }
    tests = []
    for path, text in sorted(files.items()):
        if _TEST.search(path):
            tests += [(path, at) for at in _test_starts(text.split("\n"))[:1]]
    for path, at in _shuffled(tests, order):
        lines = files[path].split("\n")
        end = min(len(lines), at + 1 + MOST_LINES)
        body = "\n".join(lines[at + 1 : end])
        if len(body) >= 200 and any(len(word) >= 5 and word in defined for word in _WORD.findall(body)):
            yield _written(package, language, "test", files, path, at + 1, end, rest=False)


def _test_starts(lines: list[str]) -> list[int]:
    start = re.compile(
        r"\s*(def test|(it|test|describe)\(|public void test|@Test|select .*\()", re.IGNORECASE
    )
    return [at for at, line in enumerate(lines) if start.match(line)]


# ---- a rename across files ---------------------------------------------------------------------------------


def _rename(package: str, language: str, files: Files, order: random.Random) -> Iterator[Scenario]:
    words = {path: set(_WORD.findall(text)) for path, text in files.items()}
    using: dict[str, list[str]] = defaultdict(list)
    names = sorted({name for text in files.values() for name, _ in definitions(text) if len(name) >= 5})
    for path in sorted(files):
        for name in words[path]:
            using[name].append(path)
    spare = [name for name in names if len(name) <= 14]
    for name in _shuffled([name for name in names if 4 <= len(using[name]) <= 60], order):
        pattern = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
        path = order.choice(using[name])
        new = _renamed(name, order.choice(spare))
        lines = files[path].split("\n")
        used = [at for at, line in enumerate(lines) if pattern.search(line)]
        if not 3 <= len(used) <= MOST_LINES or new in using:
            continue
        disk = {other: pattern.sub(new, text) for other, text in files.items() if other != path}
        stretches = []
        for at in used:
            place = pattern.search(lines[at])
            assert place is not None
            was = "\n".join(lines)
            head = "\n".join([*lines[:at], lines[at][: place.start()]])
            lines[at] = pattern.sub(new, lines[at])
            rest = "\n" + "\n".join(lines[at + 1 :])
            stretches.append(Stretch(head, lines[at][place.start() :], rest, was))
        yield Scenario(package, language, "rename", path, disk, tuple(stretches))


def _renamed(name: str, other: str) -> str:
    """With a word more, in the name's own style."""
    word = other.strip("_")
    if "_" in name or name.islower():
        return f"{name}_{word.lower()}"
    return name + word[0].upper() + word[1:]


# ---- shared ------------------------------------------------------------------------------------------------


def _written(
    package: str,
    language: str,
    kind: str,
    files: Files,
    path: str,
    first: int,
    end: int,
    *,
    rest: bool = True,
) -> Scenario:
    """Lines `first` to `end` are written; without `rest` nothing stands after them yet."""
    lines = files[path].split("\n")
    end = min(end, first + MOST_LINES)
    before = "\n".join(lines[:first]) + "\n"
    after = "\n".join(lines[end:]) if rest else ""
    truth = "\n".join(lines[first:end]) + "\n"
    disk = {other: text for other, text in files.items() if other != path}
    return Scenario(package, language, kind, path, disk, (Stretch(before, truth, after),))


def _shuffled(items: Iterable[T], order: random.Random) -> list[T]:
    found = list(items)
    order.shuffle(found)
    return found


_DRAWS: dict[str, Callable[[str, str, Files, random.Random], Iterator[Scenario]]] = {
    "rename": _rename,
    "copied": _copied,
    "table": _table,
    "test": _test,
}

_LANGUAGES = {".py": "python", ".ts": "typescript", ".java": "java", ".sql": "sql"}


def source_files(members: Iterable[tuple[str, str]], wanted: Callable[[str], bool]) -> dict[str, Files]:
    """A package's source files by language."""
    found: dict[str, Files] = defaultdict(dict)
    for path, text in members:
        language = _LANGUAGES.get(PurePosixPath(path.removesuffix(".in")).suffix)
        if language and wanted(path) and not path.endswith(".d.ts"):
            found[language][path] = text.replace("\r\n", "\n")
    return dict(found)
