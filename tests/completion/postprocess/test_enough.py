"""Decoding stops soon after what would be cut anyway."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from copilotd.completion import postprocess
from copilotd.completion.postprocess import Context
from copilotd.config import SessionSettings


def context(document: str, language: str = "python") -> Context:
    before, _, after = document.partition("‸")
    place = Context(before=before, after=after, language=language)
    return replace(place, scope=postprocess.scope(place, SessionSettings()))


def lines_asked_for(place: Context, says: str) -> int:
    """How many lines a model that writes a character a round is made to begin."""
    for end in range(1, len(says) + 1):
        if postprocess.enough(place, says[:end]):
            return says[:end].rstrip("\n").count("\n") + 1
    return says.count("\n") + 1


def test_within_one_line_of_the_first_duplicate() -> None:
    place = context("def area(w, h):\n    ‸\n    return w * h\n\nprint(area(2, 3))\n")
    says = 'if w < 0 or h < 0:\n        raise ValueError("neg")\n    return w * h\n\nprint(area(2, 3))\n'
    assert lines_asked_for(place, says) == 3


def test_a_duplicate_with_blanks_at_its_end() -> None:
    place = context("def area(w, h):\n    ‸\n    return w * h\n")
    assert lines_asked_for(place, "h = 1\n    return w * h   \n    x\n    y\n") == 2


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("items.append(1)\n" * 3, "items.append(1)\n" * 40),
        ("", "items.append(1)\n" * 40),
        ("a = f(a)\nb = g(b)\n", "a = f(a)\nb = g(b)\n" * 20),
        ("", "a = f(a)\nb = g(b)\n" * 20),
    ],
)
def test_a_circle_is_left_within_six_lines(before: str, says: str) -> None:
    assert lines_asked_for(context(before + "‸\n"), says) <= 6


def test_a_circle_within_a_line_is_left() -> None:
    place = context("def f():\n    ‸\n")
    says = "x = " + "very " * 200
    assert any(postprocess.enough(place, says[:end]) for end in range(100))


def test_the_end_of_the_line_where_a_line_is_wanted() -> None:
    place = context("total = ‸\n")
    assert not postprocess.enough(place, "sum(xs)")
    assert postprocess.enough(place, "sum(xs)\n")
    assert not postprocess.enough(place, "\nx")


def test_the_end_of_the_block() -> None:
    place = context("def f(x):\n    ‸\n\n\ndef g():\n    pass\n")
    says = "y = x\n    return y\n\n\ndef h():\n    pass\n    more\n    more\n"
    assert lines_asked_for(place, says) <= 6


def test_a_table_is_not_enough() -> None:
    place = context("TABLE = {\n‸\n")
    assert not postprocess.enough(place, '    "red": 1,\n    "green": 2,\n    "blue": 3,\n')


def test_a_line_without_end() -> None:
    assert postprocess.enough(context("x = ‸"), "".join(f"{number}, " for number in range(100)))
