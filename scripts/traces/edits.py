"""From an old text to a new one: what a person would do, top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from msgspec import Struct

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
SIMILAR = 0.5
"""Lines less alike are written anew, not mended."""


class Write(Struct, frozen=True):
    """At an offset of the text as it then is: select `selected` characters, type `text` over them."""

    offset: int
    selected: int
    text: str


class Paste(Struct, frozen=True):
    """The same in one go."""

    offset: int
    selected: int
    text: str


Step = Write | Paste


def steps(old: str, new: str) -> list[Step]:
    """Applied one after the other they make `old` into `new`. Whole lines added are typed, lines that
    changed are mended word by word, lines that are gone are deleted in one go."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    found: list[Step] = []
    moved = 0
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        start = sum(map(len, before[:i1])) + moved
        gone, come = before[i1:i2], after[j1:j2]
        found += _hunk(start, gone, come)
        moved += sum(map(len, come)) - sum(map(len, gone))
    return found


def _hunk(start: int, gone: list[str], come: list[str]) -> Iterator[Step]:
    if len(gone) == len(come) and all(
        SequenceMatcher(None, a, b).ratio() >= SIMILAR for a, b in zip(gone, come, strict=True)
    ):
        for a, b in zip(gone, come, strict=True):
            yield from _mended(start, a, b)
            start += len(b)
        return
    if gone:
        yield Paste(start, sum(map(len, gone)), "")
    if come:
        yield Write(start, 0, "".join(come))


def _mended(start: int, old: str, new: str) -> Iterator[Step]:
    """One line into another, word by word; neighbouring changes count as one."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    moved = 0
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        place = sum(map(len, before[:i1])) + moved
        gone, come = sum(map(len, before[i1:i2])), "".join(after[j1:j2])
        yield Write(start + place, gone, come) if come else Paste(start + place, gone, "")
        moved += len(come) - gone


def applied(text: str, step: Step) -> str:
    return text[: step.offset] + step.text + text[step.offset + step.selected :]


def copied(text: str, original: tuple[int, int], adapted: tuple[int, int]) -> tuple[str, list[Step]]:
    """The text without the lines `adapted`, and the steps that bring them back by copying the lines
    `original` and changing what differs. Lines from 1, ends included."""
    lines = text.splitlines(keepends=True)
    source = "".join(lines[original[0] - 1 : original[1]])
    target = "".join(lines[adapted[0] - 1 : adapted[1]])
    above = "".join(lines[: adapted[0] - 1])
    old = above + "".join(lines[adapted[1] :])
    change = [_shifted(step, len(above)) for step in steps(source, target)]
    return old, [Paste(len(above), 0, source), *change]


def _shifted(step: Step, by: int) -> Step:
    return type(step)(step.offset + by, step.selected, step.text)


def typed_again(text: str, first: int, last: int) -> tuple[str, list[Step]]:
    """The text without the lines first … last, and the step that types them again."""
    lines = text.splitlines(keepends=True)
    above = "".join(lines[: first - 1])
    return above + "".join(lines[last:]), [Write(len(above), 0, "".join(lines[first - 1 : last]))]
