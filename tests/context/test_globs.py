"""Patterns mean what pathspec says, and cost little whoever wrote them."""

from __future__ import annotations

import random

import pytest
from pathspec import GitIgnoreSpec

from copilotd.context.globs import compile_line, compile_lines


def test_patterns_keep_their_meaning() -> None:
    rng = random.Random(5)
    parts = ["*", "**", "a", "b", "?", "[ab]", "\\*", "(", "[(]", "c"]
    matches = 0
    for _ in range(3000):
        line = "/".join(
            "".join(rng.choices(parts, k=rng.randrange(1, 7))) for _ in range(rng.randrange(1, 4))
        )
        ours, pathspecs = compile_line(line), GitIgnoreSpec.from_lines([line])
        for _ in range(10):
            name = "/".join(
                "".join(rng.choices("abc(*", k=rng.randrange(1, 7))) for _ in range(rng.randrange(1, 4))
            )
            assert ours.match_file(name) == pathspecs.match_file(name), (line, name)
            matches += ours.match_file(name)
    assert matches > 1000


def test_no_star_and_no_bracket_goes_past_a_folder() -> None:
    """As in git; pathspec lets `[!a]` match a "/"."""
    spec = compile_line("/*[!a]*c")
    assert spec.match_file("xbxc")
    assert not spec.match_file("aac")
    assert not spec.match_file("a/a/c")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "line",
    [
        "*a" * 30 + "b",
        "*" * 60 + "b",
        "*(" * 30 + "b",
        "*[(]" * 30 + "b",
        "*?a" * 20 + "b",
        "**/a/" * 20 + "b",
    ],
)
def test_no_line_of_a_strangers_takes_for_ever(line: str) -> None:
    spec = compile_lines([line])
    for name in ("a" * 200, "(" * 200, "a/" * 60 + "c"):
        assert not spec.match_file(name)


def test_a_line_that_cannot_be_read_is_passed_over() -> None:
    spec = compile_lines(["!", "a\0*", "**/a/**/b/**/c/**/d", "kept"])
    assert spec.match_file("kept")
    assert not spec.match_file("other")
    with pytest.raises(ValueError, match="NUL"):
        compile_line("a\0")
