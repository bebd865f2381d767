"""Lines as in a .gitignore, made harmless: whoever wrote them, a match takes no longer than it should.

pathspec turns a line into a regular expression that tries a star's every end against every end of the next:
`*a*a*a*a*b` takes half a minute for one name of 200 letters, and a line from a stranger's repository may have
twenty. Within one part of a path the first place where the text after a star fits is as good as any other, so
the expression need not come back to it; and a line may skip any number of folders `MAX_SKIPS` times only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pathspec import GitIgnoreSpec

MAX_SKIPS = 3

_STAR = "[^/]*"
_SKIPS = ("(?:.+/)?", "(?:/.+)?")
_BETWEEN_STARS = re.compile(r"\0((?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\0/()\\\[])+)(?=\0)")


def compile_line(line: str) -> GitIgnoreSpec:
    """One line. Raises ValueError where it cannot be read or asks for too much."""
    if "\0" in line:
        raise ValueError("a NUL in a pattern")
    try:
        spec = GitIgnoreSpec.from_lines([line])
        for pattern in spec.patterns:
            if pattern.regex is not None:
                pattern.regex = re.compile(_without_retries(pattern.regex.pattern))
    except re.error as error:
        raise ValueError(str(error)) from None
    return spec


def compile_lines(lines: Iterable[str]) -> GitIgnoreSpec:
    """Every line that can be read; git, too, passes over one that it cannot read."""
    patterns: list[Any] = []
    for line in lines:
        try:
            patterns.extend(compile_line(line).patterns)
        except ValueError:
            continue
    return GitIgnoreSpec(patterns)


def _without_retries(expression: str) -> str:
    if sum(expression.count(skip) for skip in _SKIPS) > MAX_SKIPS:
        raise ValueError("too many ** in a pattern")
    stars = re.sub(r"\0+", "\0", expression.replace(_STAR, "\0"))
    return _BETWEEN_STARS.sub(r"(?>[^/]*?\1)", stars).replace("\0", _STAR)
