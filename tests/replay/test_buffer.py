"""The player's own documents: UTF-16 positions, several edits at once."""

from __future__ import annotations

import re

import pytest

from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Edit

TEXT = "a🎉b\r\nc\fd\n\re"


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ((0, 0), 0),
        ((0, 1), 1),
        ((0, 3), 2),
        ((0, 9), 3),
        ((1, 2), 7),
        ((2, 0), 9),
        ((3, 1), 11),
        ((7, 3), 11),
    ],
)
def test_positions_count_utf16_and_clamp(position: tuple[int, int], offset: int) -> None:
    assert Buffer(TEXT).offset(position) == offset


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 7, 8, 9, 10, 11])
def test_position_and_offset_are_inverse(offset: int) -> None:
    buffer = Buffer(TEXT)
    assert buffer.offset(buffer.position(offset)) == offset


def test_edits_apply_one_after_the_other() -> None:
    buffer = Buffer("alpha\nbeta\n")
    buffer.apply([Edit(((0, 5), (0, 5)), "!"), Edit(((0, 0), (0, 1)), "A"), Edit(((1, 0), (9, 9)), "")])
    assert buffer.text == "Alpha!\n"
    assert buffer.version == 2


@pytest.mark.parametrize("text", ["", "a", "a\n", "\n\n", "a\nb\n\nc", "a\r\nb\r\n", "\r\r", "\n\r\n"])
def test_lines_are_counted_alike_whatever_ends_them(text: str) -> None:
    buffer, starts = Buffer(text), [0, *(end.end() for end in re.finditer("\r\n|\n|\r", text))]
    assert [buffer.offset((number, 0)) for number in range(len(starts))] == starts
    assert buffer.offset((len(starts), 0)) == buffer.offset((2**31 - 1, 0)) == len(text)
    for number, start in enumerate(starts):
        assert buffer.position(start) == (number, 0)
