"""The measure itself: holes, counting, and a model as its own draft."""

from __future__ import annotations

from pathlib import Path

import pytest
from pair.corpus import Document
from pair.evaluation import MID_LINE, Hole, LookupAlone, Model, Quality, drafting, holes, loops, sound

SHIPPED = Path(__file__).parents[2] / "copilotd" / "models" / "embedded" / "target"
REPEATED = "    if handler is None:\n        raise ValueError(message)\n"
TEXT = "".join(
    f"def check_{i}(handler, message):\n{REPEATED}    return handler.run({i})\n\n\n" for i in range(40)
)
DOCUMENT = Document("pkg", "src/checks.py", "python", TEXT)


def hole(before: str, truth: str, after: str, language: str = "python") -> Hole:
    document = Document("pkg", "a", language, before + truth + after)
    return Hole(document, len(before), truth, "inside a word")


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHIPPED, context_tokens=512, quantisation="int8")


def test_holes_are_the_rest_of_a_line_in_all_three_kinds() -> None:
    found = holes([DOCUMENT], "python", 3, seed=1)
    assert [one.kind for one in found] == ["after indentation", "at a word's end", "inside a word"]
    for one in found:
        assert one.before + one.truth + one.after == TEXT
        assert one.after.startswith("\n")
    assert found[0].before.rpartition("\n")[2].isspace() or found[0].before.endswith("\n")
    assert found[1].before[-1].isalnum()
    assert found[2].before[-2:].isidentifier()
    assert found[2].truth[0].isidentifier()
    assert holes([DOCUMENT], "python", 3, seed=1) == found
    assert holes([DOCUMENT], "java", 3, seed=1) == []


def test_holes_in_mid_line_are_in_code_and_after_its_first_word() -> None:
    lines = "// what is said here\nfinal int size = sum(parts);\n * and there, too\n\ntotal += size;\n"
    found = holes([Document("pkg", "A.java", "java", lines * 200)], "java", 12, seed=1, kinds=MID_LINE)
    assert len(found) == 12
    for one in found:
        typed = one.before.rpartition("\n")[2]
        assert typed[-1].isalnum()
        assert len(typed.split()) > 1 or "(" in typed
        assert typed.startswith(("final ", "total "))


def test_quality_counts_characters_from_the_start() -> None:
    one = hole("x = ", "total", "\n")
    quality = Quality.of([(one, "total"), (one, "tomato"), (one, ""), (one, "atotal")])
    assert (quality.holes, quality.exact, quality.right, quality.characters) == (4, 1, 5 + 2, 20)
    short = Quality.of([(one, ""), (hole("x = ", "it", "\n"), "it")])
    assert short.mean_share == 0.5
    assert short.right_share == pytest.approx(2 / 7)
    quality.add_bits(20.0, 10)
    assert quality.bits_per_byte == 2.0


@pytest.mark.parametrize(
    ("language", "line", "parses"),
    [
        ("python", "a, b)", True),
        ("python", "a, b", False),
        ("java", "x[0], (y) -> 1)", True),
        ("java", "x[0)", False),
        ("java", "f(')'))", True),
    ],
)
def test_lines_that_break_what_stands_around_are_seen(language: str, line: str, parses: bool) -> None:
    assert sound(hole("print(", "1)", "\n", language), line) is parses


def test_loops_are_seen_and_lists_are_not() -> None:
    assert loops([7, 1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert loops([5, 5, 5, 5, 5, 5])
    assert not loops([1, 2, 3, 1, 2, 4, 1, 2, 5])
    assert not loops([5, 5, 5])


def test_lookup_alone_copies_what_stands_elsewhere(model: Model) -> None:
    at = TEXT.index("lueError(message)", len(TEXT) // 2)
    assert (
        LookupAlone(model).line(Hole(DOCUMENT, at, "lueError(message)", "inside a word"))
        == "lueError(message)"
    )


def test_a_model_is_measured_on_what_healing_makes_it_write(model: Model) -> None:
    at = TEXT.index("lueError(message)", len(TEXT) // 2)
    one = Hole(DOCUMENT, at, "lueError(message)", "inside a word")
    prompt = model.prompt(one)
    assert prompt.dropped.endswith("Va")
    assert "\n" not in model.line(one)
    bits, size = model.bits(one)
    assert size == len(prompt.dropped + one.truth + "\n")
    assert 0 < bits < 16 * size


def test_a_model_accepts_all_that_it_drafts_for_itself(model: Model) -> None:
    seen = drafting(model, model, holes([DOCUMENT], "python", 3, seed=2), temperature=0.0)
    assert seen.acceptance == 1.0
    assert seen.tokens_per_step > 1.5
