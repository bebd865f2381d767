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
        start = self._line(position[0])
        stop = _LINE_END.search(self.text, start)
        line = self.text[start : stop.start() if stop else len(self.text)]
        return start + len(line.encode("utf-16-le")[: 2 * position[1]].decode("utf-16-le", "ignore"))

    def position(self, offset: int) -> Position:
        """The position of a code point offset."""
        text = self.text
        line = text.count("\n", 0, offset) + text.count("\r", 0, offset) - text.count("\r\n", 0, offset)
        start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        return line, len(text[start:offset].encode("utf-16-le")) // 2

    def _line(self, number: int) -> int:
        """Where a line begins, in code points; the text's length past the last."""
        if "\r" not in self.text:  # the common case, and quick where the lines are many
            lines = self.text.split("\n", min(number, len(self.text)))
            return len(self.text) - (len(lines[-1]) if len(lines) > number else 0)
        start = 0
        for _ in range(number):
            end = _LINE_END.search(self.text, start)
            if end is None:
                return len(self.text)
            start = end.end()
        return start
