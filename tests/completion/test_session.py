from __future__ import annotations

import pytest
from msgspec.structs import replace

from copilotd.completion.session import ENTRIES, Entry, Memory, Spot, remainder
from copilotd.config import SessionSettings
from tests.completion.asking import ask


def remembered(marked: str, text: str, covers: int = 0) -> Memory:
    memory = Memory()
    memory.add(Entry(Spot.of(ask(marked)), text, covers))
    return memory


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ("x = re‸\ny\n", "turned(1)"),
        ("x = ret‸\ny\n", "urned(1)"),
        ("x = ‸\ny\n", "returned(1)"),  # Backspace into it
        ("x = returned(‸)\ny\n", "1)"),  # the editor closed the bracket
        ("x = returned(1)‸\ny\n", None),  # all of it is there
        ("x = res‸\ny\n", None),
        ("y = re‸\ny\n", None),
        ("x = re‸\nz\n", None),
        ("x = re‸\ny\nz\n", None),
        ("x =‸\ny\n", None),
    ],
)
def test_typed_through(later: str, left: str | None) -> None:
    found = remembered("x = ‸\ny\n", "returned(1)").recall(ask(later))
    assert (found and found.text) == left
    if found:
        assert found.closers_came == ("‸)" in later)


def test_a_block_is_typed_through_with_the_documents_line_ends() -> None:
    memory = remembered("if x:‸\r\nz\r\n", "\n    a = 1\n    b = 2")
    found = memory.recall(ask("if x:\r\n    a = 1\r\n    ‸\r\nz\r\n"))
    assert found is not None
    assert found.text == "b = 2"


def test_what_the_range_covers_shrinks_when_it_is_typed_over() -> None:
    memory = remembered("f(a‸)\n", ", b).g()", covers=1)
    found = memory.recall(ask("f(a, b‸)\n"))
    assert found is not None
    assert (found.text, found.covers) == (").g()", 1)
    found = memory.recall(ask("f(a, b)‸\n"))
    assert found is not None
    assert (found.text, found.covers) == (".g()", 0)


def test_other_settings_are_another_question() -> None:
    one = ask("x = ‸")
    memory = remembered("x = ‸", "1")
    assert memory.recall(one)
    assert not memory.recall(replace(one, settings=SessionSettings(multiline="never")))


def test_alternatives_are_kept_by_position_and_the_newest_wins() -> None:
    memory = remembered("x = ‸", "first")
    memory.add(Entry(Spot.of(ask("x = f‸")), "ollow"))
    memory.add(Entry(Spot.of(ask("x = ‸")), "second"))
    texts = [(found := memory.recall(ask(f"x = {typed}‸"))) and found.text for typed in ("", "f", "fi")]
    assert texts == ["second", "ollow", "rst"]


def test_that_there_was_no_answer_is_known_for_that_very_place() -> None:
    memory = Memory()
    memory.add(Entry(Spot.of(ask("x = ‸")), "", reason="nothing"))
    found = memory.recall(ask("x = ‸"))
    assert found is not None
    assert (found.text, found.entry.reason) == ("", "nothing")
    assert memory.recall(ask("x = 1‸")) is None


def test_the_oldest_go() -> None:
    memory = remembered("x = ‸", "1")
    for i in range(ENTRIES):
        memory.add(Entry(Spot.of(ask(f"y{i} = ‸")), "2"))
    assert memory.recall(ask("x = ‸")) is None


@pytest.mark.parametrize(
    ("suggested", "typed", "left"),
    [
        ("total += x", "tot2", " += x"),  # another word
        ("foo(bar)", "foo(x, bar", ")"),  # something in between... what was typed farther right
        ("foo(bar)", "foo", "(bar)"),
        ("a.b", "a.b.c", ""),
        ("self.name = name", "self.name", " = name"),
        ("key, value)", "k, value", ")"),
    ],
)
def test_remainder(suggested: str, typed: str, left: str) -> None:
    assert remainder(suggested, typed) == left
