"""A text that is edited by line and column, as LSP does it.

The text is kept in chunks of some thousand characters, each with its counts, so that an edit and a look-up
cost time by the size of the edit and the number of chunks, not by the length of the line or the text. A line
ends at "\\n", "\\r\\n" or "\\r" and nowhere else. Columns are counted in the units that were announced to the
editor; offsets are code points.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

Encoding: TypeAlias = Literal["utf-8", "utf-16", "utf-32"]

CHUNK = 4096
"""code points a chunk aims at; it holds up to twice as many"""

_BREAK = re.compile(r"\r\n|\r|\n")
_LONE = re.compile("[\ud800-\udfff]")


class Point(NamedTuple):
    offset: int
    half: bool
    """the column stood between the two halves of the character at `offset` (UTF-16 only)"""


class Splice(NamedTuple):
    """Replace text[start:end] by `text`."""

    start: int
    end: int
    text: str


def units(text: str, encoding: Encoding) -> int:
    """Length of the text as the editor counts it. A lone surrogate is one UTF-16 unit."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def advance(text: str, count: int, encoding: Encoding) -> Point:
    """Where `count` units from the start of the text end, rounded down to a whole character."""
    if encoding == "utf-32" or text.isascii():
        return Point(min(count, len(text)), half=False)
    if encoding == "utf-8":
        whole = without_lone_surrogates(text).encode()[:count].decode("utf-8", "ignore")
        return Point(len(whole), half=False)
    head = text.encode("utf-16-le", "surrogatepass")[: 2 * count].decode("utf-16-le", "surrogatepass")
    half = bool(head) and "\ud800" <= head[-1] <= "\udbff" and text[len(head) - 1] > "\uffff"
    return Point(len(head) - half, half)


def without_lone_surrogates(text: str) -> str:
    """The text as UTF-8 can carry it, of the same length in code points."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


class _Chunk(NamedTuple):
    text: str
    breaks: int
    """lines that end in it"""
    units: int


class Text:
    """An editable text. Chunks never part "\\r\\n", and only an empty text has an empty chunk."""

    def __init__(self, content: str, encoding: Encoding = "utf-16") -> None:
        self._encoding: Encoding = encoding
        self._chunks = self._cut(content)
        self._length = len(content)

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        return "".join(chunk.text for chunk in self._chunks)

    def slice(self, start: int, end: int) -> str:
        """text[start:end], the bounds clamped."""
        first, base = self._holding(max(start, 0))
        parts: list[str] = []
        for chunk in islice(self._chunks, first, None):
            if base >= end:
                break
            parts.append(chunk.text[max(start - base, 0) : end - base])
            base += len(chunk.text)
        return "".join(parts)

    def point(self, line: int, column: int) -> Point:
        """The place of a position. Past the line's end is the line's end, past the text's end the text's end."""
        index, base, within = self._line(line)
        left = max(column, 0)
        for chunk in islice(self._chunks, index, None):
            if within == 0 and chunk.breaks == 0 and chunk.units <= left:
                left -= chunk.units
            else:
                ending = _BREAK.search(chunk.text, within)
                segment = chunk.text[within : ending.start() if ending else None]
                width = units(segment, self._encoding)
                if ending or left <= width:
                    found = advance(segment, min(left, width), self._encoding)
                    return Point(base + within + found.offset, found.half)
                left -= width
            base += len(chunk.text)
            within = 0
        return Point(self._length, half=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset; the other way round from `point`."""
        offset = min(max(offset, 0), self._length)
        if self.slice(offset - 1, offset + 1) == "\r\n":
            offset -= 1
        index, base = self._holding(offset)
        head = self._chunks[index].text[: offset - base]
        line = _breaks(head) + sum(chunk.breaks for chunk in islice(self._chunks, index))
        column = units(_last_line(head), self._encoding)
        while index and not _breaks(head):
            index -= 1
            head = self._chunks[index].text
            column += units(_last_line(head), self._encoding)
        return line, column

    def edit(self, start: tuple[int, int], end: tuple[int, int], new: str) -> Splice:
        """Replace what stands between two positions, and say it in offsets.

        An edit may cut a surrogate pair or put one together; halves are kept as they are and join again.
        """
        first, last = self.point(*start), self.point(*end)
        if last < first:
            first, last = last, first
        begin, stop = first.offset, last.offset
        if first.half:
            new = _halves(self.slice(begin, begin + 1))[0] + new
        if last.half:
            new = new + _halves(self.slice(stop, stop + 1))[1]
            stop += 1
        return self.replace(*self._joined(begin, stop, new))

    def replace(self, start: int, end: int, new: str) -> Splice:
        """Replace text[start:end]."""
        first, base = self._holding(start)
        last, behind = self._holding(end)
        head = self._chunks[first].text[: start - base]
        tail = self._chunks[last].text[end - behind :]
        if first and len(head) < CHUNK // 4:
            first -= 1
            head = self._chunks[first].text + head
        if last + 1 < len(self._chunks) and len(tail) < CHUNK // 4:
            last += 1
            tail += self._chunks[last].text
        self._chunks[first : last + 1] = self._cut(head + new + tail)
        self._length += len(new) - (end - start)
        return Splice(start, end, new)

    def line_start(self, offset: int, within: int) -> int | None:
        """The first start of a line in [offset, offset + within], or None."""
        if offset <= 0:
            return 0
        around = self.slice(offset - 1, offset + within + 1)
        for ending in _BREAK.finditer(around):
            # a "\r" at the very end may be the first half of "\r\n"
            if ending.end() < len(around) or offset - 1 + ending.end() == self._length:
                return offset - 1 + ending.end()
        return None

    def last_line_start(self, offset: int, within: int) -> int | None:
        """The last start of a line in [offset - within, offset], or None; the text's start is not looked for."""
        base = max(0, offset - within - 1)
        around = self.slice(base, offset)
        if around.endswith("\r") and self.slice(offset, offset + 1) == "\n":
            around = around[:-1]
        cut = max(around.rfind("\n"), around.rfind("\r")) + 1
        return base + cut if cut else None

    def _joined(self, start: int, end: int, new: str) -> Splice:
        """The same edit, grown so that halves of a surrogate pair that come together are one character."""
        if start and "\ud800" <= (before := self.slice(start - 1, start)) <= "\udbff":
            start, new = start - 1, before + new
        if "\udc00" <= (after := self.slice(end, end + 1)) <= "\udfff":
            end, new = end + 1, new + after
        if not new.isascii() and _LONE.search(new):
            new = new.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return Splice(start, end, new)

    def _holding(self, offset: int) -> tuple[int, int]:
        """Index and start of the chunk that holds an offset; of two that touch it, the first."""
        base = 0
        for index, chunk in enumerate(self._chunks):
            if offset <= base + len(chunk.text):
                return index, base
            base += len(chunk.text)
        return len(self._chunks) - 1, base - len(self._chunks[-1].text)

    def _line(self, line: int) -> tuple[int, int, int]:
        """Chunk, its start, and the index within it at which a line starts; past the last line, the end."""
        if line <= 0:
            return 0, 0, 0
        base = seen = 0
        for index, chunk in enumerate(self._chunks):
            if seen + chunk.breaks >= line:
                ending = next(islice(_BREAK.finditer(chunk.text), line - seen - 1, None))
                return index, base, ending.end()
            seen += chunk.breaks
            base += len(chunk.text)
        return len(self._chunks), base, 0

    def _cut(self, content: str) -> list[_Chunk]:
        return [_Chunk(part, _breaks(part), units(part, self._encoding)) for part in _parts(content)]


def _parts(content: str) -> Iterator[str]:
    start = 0
    while len(content) - start > 2 * CHUNK:
        end = start + CHUNK
        if content[end - 1] == "\r" and content[end : end + 1] == "\n":
            end += 1
        yield content[start:end]
        start = end
    yield content[start:]


def _breaks(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _last_line(text: str) -> str:
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]


def _halves(character: str) -> tuple[str, str]:
    """The two surrogates of an astral character."""
    code = ord(character) - 0x10000
    return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))
