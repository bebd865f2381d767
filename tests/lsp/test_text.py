"""Positions and edits, against a model that knows nothing of chunks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.lsp import text as module
from copilotd.lsp.text import Encoding, Text, advance, units

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "utf-16", "utf-32")
PIECES = [
    "a",
    "é",
    "数",
    "🎉",
    "👨‍👩‍👧",
    "\n",
    "\r\n",
    "\r",
    "\f",
    "\u2028",
    "\x85",
    "\v",
    "\x1c",
    "é",
    "  ",
    "xyz",
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
small = st.integers(0, 12)
edits = st.tuples(small, small, small, small, texts)


def coded(text: str, encoding: Encoding) -> list[str]:
    """The text as single units of the encoding, each a str, so that a list index is a column."""
    if encoding == "utf-16":
        data = text.encode("utf-16-le", "surrogatepass")
        return [chr(data[i] + 256 * data[i + 1]) for i in range(0, len(data), 2)]
    if encoding == "utf-8":
        return [chr(byte) for byte in text.encode()]
    return list(text)


def decoded(found: list[str], encoding: Encoding) -> str:
    if encoding == "utf-16":
        return "".join(found).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if encoding == "utf-8":
        return bytes(map(ord, found)).decode()
    return "".join(found)


def index(found: list[str], line: int, column: int) -> int:
    """Where a position stands in a list of units."""
    joined = "".join(found)
    starts = [0, *(m.end() for m in re.finditer("\r\n|\r|\n", joined))]
    if line >= len(starts):
        return len(found)
    ending = re.compile("\r\n|\r|\n").search(joined, starts[line])
    return min(starts[line] + column, ending.start() if ending else len(found))


@pytest.fixture(autouse=True)
def tiny_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)


@given(content=texts, changes=st.lists(edits, max_size=6))
def test_edits_in_utf16_equal_edits_of_a_list_of_units(content: str, changes: list) -> None:
    text, model = Text(content, "utf-16"), coded(content, "utf-16")
    copy = content
    for line, column, to_line, to_column, new in changes:
        start, end = sorted((index(model, line, column), index(model, to_line, to_column)))
        splice = text.edit((line, column), (to_line, to_column), new)
        model[start:end] = coded(new, "utf-16")
        copy = copy[: splice.start] + splice.text + copy[splice.end :]
        assert str(text) == decoded(model, "utf-16") == copy
        assert len(text) == len(copy)


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(content=texts, line=small, column=small)
def test_a_position_is_the_offset_it_names_or_the_one_before_it(
    encoding: Encoding, content: str, line: int, column: int
) -> None:
    text, model = Text(content, encoding), coded(content, encoding)
    at = index(model, line, column)
    offset = text.point(line, column).offset
    width = units(content[:offset], encoding)
    assert width <= at
    assert offset == len(content) or units(content[: offset + 1], encoding) > at or width == at
    assert text.point(*text.position(offset)).offset == offset


@given(content=texts, data=st.data())
def test_every_offset_has_a_position(content: str, data: st.DataObject) -> None:
    text = Text(content, "utf-16")
    offset = data.draw(st.integers(0, len(content)))
    inside = content[offset - 1 : offset + 1] == "\r\n"
    assert text.point(*text.position(offset)).offset == offset - inside


@given(content=texts, start=small, end=small)
def test_a_slice_is_a_slice(content: str, start: int, end: int) -> None:
    assert Text(content).slice(start, end) == content[start:end]


@given(content=texts, offset=small)
def test_line_starts(content: str, offset: int) -> None:
    starts = [0, *(m.end() for m in re.finditer("\r\n|\r|\n", content))]
    expected = next((start for start in starts if start >= offset), None)
    assert Text(content).line_start(offset, len(content) + 1) == expected
    offset = min(offset, len(content))
    before = max((start for start in starts[1:] if start <= offset), default=None)
    assert Text(content).last_line_start(offset, len(content) + 1) == before


@pytest.mark.parametrize("pieces", [("a\r", "", "\nb"), ("a", "\r", "\nb"), ("a\r", "\n", "b")])
def test_carriage_return_and_newline_that_meet_end_one_line(pieces: tuple[str, str, str]) -> None:
    before, middle, after = pieces
    text = Text(before + "xx" + after)
    text.replace(len(before), len(before) + 2, middle)
    assert text.position(len(text)) == (1, 1)


def test_a_column_between_the_halves_of_a_character_is_before_it() -> None:
    assert advance("x🚀y", 2, "utf-16") == (1, True)
    assert Text('x = "🚀"\n').point(0, 6).offset == 5


def test_an_edit_may_take_half_a_character_and_give_it_back() -> None:
    text = Text("a🚀b")
    text.edit((0, 2), (0, 3), "")
    assert str(text) == "a\ud83db"
    text.edit((0, 2), (0, 2), "\ude80")
    assert str(text) == "a🚀b"


def test_negative_and_huge_positions_are_clamped() -> None:
    text = Text("ab\ncd")
    assert text.point(-1, -1).offset == 0
    assert text.point(0, 1 << 40).offset == 2
    assert text.point(1 << 40, 0).offset == 5


def test_an_edit_costs_time_by_its_size_not_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 4096)
    handled: list[int] = []
    measure = module._breaks

    def counting(part: str) -> int:
        handled.append(len(part))
        return measure(part)

    text = Text("x" * 2_000_000)
    monkeypatch.setattr(module, "_breaks", counting)
    for column in range(1_000_000, 1_000_100):
        text.edit((0, column), (0, column), "y")
    assert max(handled) < 4 * 4096
    assert len(text._chunks) < 600
