"""A document as an editor holds it: edits and positions in UTF-16."""

from __future__ import annotations

import re
from collections.abc import Iterable

from copilotd.replay.trace import Edit, Position

_LINE_END = re.compile(r"\r\n|\n|\r")


class Buffer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.version = 1

    def apply(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            start, end = (self.offset(position) for position in edit.range)
            self.text = self.text[:start] + edit.text + self.text[end:]
        self.version += 1

    def offset(self, position: Position) -> int:
        """Code points before a position; lines and columns past the end are clamped."""
        start = 0
        for _ in range(position[0]):
            end = _LINE_END.search(self.text, start)
            if end is None:
                return len(self.text)
            start = end.end()
        stop = _LINE_END.search(self.text, start)
        line = self.text[start : stop.start() if stop else len(self.text)]
        return start + len(line.encode("utf-16-le")[: 2 * position[1]].decode("utf-16-le", "ignore"))

    def position(self, offset: int) -> Position:
        """The position of a code point offset."""
        start, line = 0, 0
        for end in _LINE_END.finditer(self.text, 0, offset):
            start, line = end.end(), line + 1
        return line, len(self.text[start:offset].encode("utf-16-le")) // 2
