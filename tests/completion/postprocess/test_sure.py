"""Which lines are shown of a text that the model is not sure of to its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.completion import postprocess
from copilotd.completion.postprocess import Context
from copilotd.completion.postprocess.sure import sure, whole_lines


@pytest.mark.parametrize(
    ("text", "doubt", "wanted"),
    [
        ("a = 1", 0, None),
        ("a = 1", 3, None),
        ("a = 1\n", 3, "a = 1"),
        ("a = 1\nb = 2", 3, "a = 1"),
        ("a = 1\nb = 2\nc", 5, "a = 1"),  # the token that ends the line is in doubt, the line is not
        ("a = 1\nb = 2\nc", 11, "a = 1\nb = 2"),
        ("a = 1\nb = 2\nc", 10, "a = 1"),
        ("a = 1\nb = 2\n\n\nc", 14, "a = 1\nb = 2"),
        ("\n    a = 1\n    b = 2\n", 0, "\n    a = 1"),
        ("\n    a = 1", 0, None),
        ("a  \n  b\n", 2, "a  "),
    ],
)
def test_whole_lines_before_the_doubts(text: str, doubt: int, wanted: str | None) -> None:
    end = whole_lines(text, doubt)
    assert (None if end is None else text[:end]) == wanted


@given(st.text("ab \n", max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_what_is_written_later_changes_nothing(text: str, doubt: int, length: int) -> None:
    """So it does not matter in which rounds a text comes, nor where decoding was ended."""
    early, late = whole_lines(text[:length], doubt), whole_lines(text, doubt)
    if early is not None and doubt < length:
        assert early == late


def test_nothing_is_cut_of_one_line_nor_where_there_are_no_doubts() -> None:
    place = Context(before="", after="\n", sure=2)
    assert sure(place, "a\nb\n") is not None
    assert sure(Context(before="", after="\n", sure=2, scope="line"), "a\nb\n") is None
    assert sure(Context(before="", after="\n"), "a\nb\n") is None
    assert sure(place, "ab") is None


def test_doubts_are_enough() -> None:
    assert postprocess.enough(Context(before="def f():\n    ", after="\n", sure=1), "a\n    b")
    assert not postprocess.enough(Context(before="def f():\n    ", after="\n"), "a\n    b")
