"""Where names are defined, found line by line with one pattern for a family of languages.

A plain reading rather than a parser: it is the same for the forty languages people have in one repository,
takes a fraction of a millisecond a file, and a wrong hit costs no more than a snippet nobody needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = r"([A-Za-z_$][\w$]*)"

_DEFINITION = re.compile(
    rf"""^[ \t]* (?!(?:return|else|throw|new|await|case)\b)
    (?:@\w+(?:\([^)\n]*\))?[ \t]+)*
    (?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)\n]*\))?
        |inline|virtual|override|unsafe|extern|sealed|open|data|partial|const(?=[ ]+(?:fn|enum|class)))[ \t]+)*
    (?:
        (?:def|class|interface|enum|struct|trait|impl|fn|func|function\*?|type|record|module|namespace|object
           |protocol|macro|union|typedef|sub|proc|procedure|package|macro_rules!)[ \t]+
            (?:\([^)\n]*\)[ \t]*)? {_WORD}
      | (?:const|let|var|val)[ \t]+ {_WORD} [ \t]*(?::[^=\n]+)?= [ \t]*(?:async[ \t]*)?(?:\(|function\b|class\b|[A-Za-z_$][\w$]*[ \t]*=>)
      | (?i:create)(?:[ \t]+(?i:or[ \t]+replace|temporary|temp|unique|materialized))*[ \t]+
            (?i:table|view|function|procedure|index|type|trigger)[ \t]+(?:(?i:if[ \t]+not[ \t]+exists)[ \t]+)?
            (?:\w+\.)?["`]? {_WORD}
      | \{{%-?[ \t]*macro[ \t]+ {_WORD}
      | [A-Za-z_][\w<>\[\],.?&*: \t]*[ \t&*]{_WORD}[ \t]*\([^;\n]*\)[^;\n]*\{{[ \t]*$
      | {_WORD} [ \t]*\([^;\n]*\)[^;\n=]*\{{[ \t]*$
    )""",
    re.VERBOSE | re.MULTILINE,
)

_NO_NAMES = frozenset(
    "if for while switch catch return else do try with match when new function and or not in".split()
)
_MAX_LINES = 12
_MAX_LINE = 400


def definitions(text: str) -> Iterator[tuple[str, int]]:
    """Each defined name and the offset of its line."""
    for found in _DEFINITION.finditer(text):
        name = next(group for group in found.groups() if group is not None)
        if name not in _NO_NAMES:
            yield name, found.start()


def outline(text: str) -> str:
    """The first lines of the outermost definitions, at most twelve."""
    lines = [text[offset : offset + _MAX_LINE].partition("\n")[0].rstrip() for _, offset in definitions(text)]
    depth = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return "\n".join([line for line in lines if len(line) - len(line.lstrip()) == depth][:_MAX_LINES])


def snippet(text: str, offset: int) -> str:
    """The definition at a line's offset: to the end of its block by indentation, at most twelve lines."""
    lines = text[offset : offset + 4096].split("\n")[: _MAX_LINES + 1]
    first = lines[0]
    depth = len(first) - len(first.lstrip())
    kept = [first]
    for line in lines[1:_MAX_LINES]:
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent <= depth:
            if line.strip()[0] in ")}]":
                kept.append(line)
            break
        kept.append(line)
    while len(kept) > 1 and not kept[-1].strip():
        kept.pop()
    return "\n".join(kept)
