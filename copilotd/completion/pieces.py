"""Encoding by pieces: a keystroke encodes the line it is on, the other lines come from a cache."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

from copilotd.models.vocabulary import Vocabulary

BEFORE_LINE = re.compile(r"(?<=\n)(?=[^\S\n]*\S)")
"""Starts of lines that are not blank: stable where a newline token takes no blanks after it (Qwen)."""

AFTER_LINE = re.compile(r"(?<=\S)(?=[^\S\n]*\n)")
"""Ends of what is visible of a line: stable where newline and indentation are one token (GPT-2's pattern)."""

SAMPLE = "import a\n\n\ndef f(x):\n    if x:\n\t\treturn [x, 1]\n\n    y = 2\n}\n\nz();\n"

LONG = 1024
"""A longer piece is cut at blanks, so that a minified line is not encoded whole at every keystroke."""

KEPT = 8192


class PieceEncoder:
    """`Vocabulary.encode`, but for text that mostly was encoded before."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._boundary = BEFORE_LINE
        self._ids = lru_cache(maxsize=KEPT)(lambda piece: tuple(vocabulary.encode(piece)))
        if self.encode(SAMPLE) != vocabulary.encode(SAMPLE):
            self._boundary = AFTER_LINE
        self.line_starts_stable = self._boundary is BEFORE_LINE
        """whether a token may end at a line's end whatever the next line is indented by"""

    def encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._ids, self.pieces(text))))

    def count(self, text: str) -> int:
        return sum(len(self._ids(piece)) for piece in self.pieces(text))

    def forget(self) -> None:
        """Drop every text that was encoded."""
        self._ids.cache_clear()

    def pieces(self, text: str) -> list[str]:
        """The text cut at stable token boundaries. Appending text changes the last piece only."""
        if not text:
            return []
        return [part for piece in self._boundary.split(text) for part in short(piece)]


def short(piece: str) -> list[str]:
    """The piece in parts of at most LONG characters, cut before a blank where there is one."""
    parts = []
    while len(piece) > LONG:
        cut = piece.rfind(" ", LONG // 2, LONG)
        cut = LONG if cut < 0 else cut
        parts.append(piece[:cut])
        piece = piece[cut:]
    return [*parts, piece]
