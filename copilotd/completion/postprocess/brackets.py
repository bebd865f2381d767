"""Are the brackets right? A small scanner that knows strings and comments, but no grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from copilotd.completion.postprocess.languages import PAIRS, Language, ending, language, top
from copilotd.completion.postprocess.texts import Context

Kind: TypeAlias = Literal["comment", "long", "string", "quote", "bracket"]

ABOVE = 16_000
BELOW = 6_000
"""code points that are looked at on each side of the cursor"""
_DOCSTRING = re.compile(r'(?m)^(?P<left>[^\n"#]*?)[rRbBfFuU]{0,2}"""(?P<right>[ \t]*[\w\\<{`*])?')
_BEFORE_A_STRING = ("=", "(", ",", "[", "{", "+", ":", "return")


class Token(Struct, frozen=True):
    kind: Kind
    text: str
    start: int
    closed: bool
    """False for a block comment, long string or quote whose end is not in the text"""


class Opened(Struct, frozen=True):
    """What is open where a text ends."""

    brackets: tuple[str, ...]
    resume: int
    """where to begin scanning again: at a comment or long string that is still open, or at the end"""
    begins_line: bool
    """nothing stands left of `resume` on its line"""


class Around(Struct, frozen=True):
    """What stands left of the cursor, as far as brackets go."""

    brackets: tuple[str, ...]
    """open above the cursor's line"""
    head: str
    """from there, or from an open comment or string, to the cursor"""
    begins_line: bool
    """nothing stands left of `head` on its line"""
    whole: bool
    """nothing farther up was left out, so that nothing else can be open"""


@cache
def _pattern(of: Language) -> re.Pattern[str]:
    parts: list[str] = []
    for start, end in of.block_comments:
        parts.append(rf"(?P<comment{len(parts)}>{re.escape(start)}(?:[\s\S]*?{re.escape(end)}|[\s\S]*\Z))")
    for start in of.line_comments:
        parts.append(rf"(?P<comment{len(parts)}>{start}[^\n]*)")
    for quote in of.long_strings:
        q = re.escape(quote)
        parts.append(rf"(?P<long{len(parts)}>{q}(?:(?:\\[\s\S]|(?!{q})[^\\])*{q}|[\s\S]*\Z))")
    for quote in of.strings:
        parts.append(rf"(?P<string{len(parts)}>{quote}(?:\\[^\n]|[^{quote}\\\n])*{quote})")
    if of.characters:
        parts.append(rf"(?P<string{len(parts)}>'(?:\\[^\n][^'\n]*|[^'\\\n])')")
    if of.strings:
        parts.append(rf"(?P<quote{len(parts)}>[{of.strings}])")
    parts.append(rf"(?P<bracket{len(parts)}>[()\[\]{{}}])")
    return re.compile("|".join(parts))


def tokens(of: Language, text: str, start: int = 0) -> Iterator[Token]:
    """Comments, strings, stray quotes and brackets in order."""
    ends = tuple(end for _, end in of.block_comments) + of.long_strings
    for match in _pattern(of).finditer(text, start):
        kind: Kind = (match.lastgroup or "").rstrip("0123456789")  # type: ignore[assignment]
        body = match.group()
        closed = kind in ("string", "bracket") or (
            match.end() < len(text) if kind == "comment" and not _is_block(of, body) else body.endswith(ends)
        )
        if kind == "long":
            quote = next(quote for quote in of.long_strings if body.startswith(quote))
            closed = len(body) >= 2 * len(quote) and body.endswith(quote)
        yield Token(kind, body, match.start(), closed)


def _is_block(of: Language, body: str) -> bool:
    return any(body.startswith(start) for start, _ in of.block_comments)


def code_of(identifier: str, line: str) -> str:
    """The line without its comments, strings kept."""
    kept, at = "", 0
    for token in tokens(language(identifier), line):
        if token.kind == "comment":
            kept += line[at : token.start]
            at = token.start + len(token.text)
    return (kept + line[at:]).rstrip()


def opens_block(identifier: str, line: str) -> bool:
    """The line's code ends in what opens a block in this language."""
    code = code_of(identifier, line)
    return bool(code.strip()) and ending(language(identifier).opener).search(code) is not None


def _walk(stack: list[str], found: Iterator[Token], whole: bool = True) -> tuple[int, int]:
    """Apply brackets to the stack. (errors, brackets of the stack that were never closed).

    Errors are closers with no opener, openers skipped and stray quotes. Not `whole`: where nothing is open, a
    closer belongs to an opener farther up.
    """
    errors, untouched = 0, len(stack)
    for token in found:
        if token.kind == "quote":
            errors += 1
        elif token.kind == "bracket":
            opener = PAIRS.get(token.text)
            if opener is None:
                stack.append(token.text)
            elif opener in stack:
                while stack.pop() != opener:
                    errors += 1
                untouched = min(untouched, len(stack))
            elif whole or stack:
                errors += 1
    return errors, untouched


@lru_cache(maxsize=4)
def _above(identifier: str, text: str) -> Opened:
    """Open brackets after the complete lines above the cursor's."""
    of = language(identifier)
    found = list(tokens(of, text, _end_of_docstring(text) if '"""' in of.long_strings else 0))
    resume = len(text)
    if found and not found[-1].closed and found[-1].kind in ("comment", "long"):
        resume = found.pop().start
    stack: list[str] = []
    _walk(stack, iter(found))
    return Opened(tuple(stack), resume, not text[text.rfind("\n", 0, resume) + 1 : resume].strip())


def _end_of_docstring(text: str) -> int:
    """Where code begins if the window begins within a docstring: its first quotes look like an end."""
    match = _DOCSTRING.search(text)
    if match is None or match.group("right"):
        return 0
    left = match.group("left").strip()
    above = text[: match.start()].rstrip()
    opens = left.endswith(_BEFORE_A_STRING) if left else not above or above.endswith(":")
    return 0 if opens else match.end()


def _around(context: Context) -> Around:
    line = context.before.rfind("\n") + 1
    first = context.before.find("\n", line - ABOVE) + 1 if line > ABOVE else 0
    lines_above, whole = context.before[first:line], first == 0
    pattern = language(context.language).top
    if not whole and pattern and (match := top(pattern).search(lines_above)):
        lines_above, whole = lines_above[match.start() :], True
    opened = _above(context.language, lines_above)
    head = lines_above[opened.resume :] + context.head
    return Around(opened.brackets, head, opened.begins_line, whole)


def errors(context: Context, text: str, covers: int = 0) -> int:
    """How many brackets and quotes would be wrong around the cursor with `text` there.

    Counts closers without an opener, openers without a closer and quotes without a partner. Only the
    difference between two texts at one place says anything. What is open above the cursor's line and not closed
    where the window ends may be closed farther down.
    """
    around = _around(context)
    stack = list(around.brackets)
    rest = around.head + text + context.after[covers : covers + BELOW]
    wrong, untouched = _walk(stack, tokens(language(context.language), rest), around.whole)
    return wrong + len(stack) - (0 if len(context.after) <= BELOW else untouched)


def stray_quotes(context: Context, text: str, tail: str) -> int:
    """Quotes without a partner, and long strings without an end, up to the end of the cursor's line."""
    around = _around(context)
    found = tokens(language(context.language), around.head + text + tail)
    return sum(token.kind in ("quote", "long") and not token.closed for token in found)


def depth(context: Context, text: str) -> int:
    """Brackets that `text` opens, less those it closes."""
    around = _around(context)
    found = tokens(language(context.language), around.head + text)
    inside = [token for token in found if token.kind == "bracket" and token.start >= len(around.head)]
    return sum(-1 if token.text in PAIRS else 1 for token in inside)


def closings(context: Context, text: str) -> list[int]:
    """Where `text` closes a bracket that was opened left of or above the cursor, or any string."""
    around = _around(context)
    stack = [(bracket, -1) for bracket in around.brackets]
    here = len(around.head)
    found = []
    for token in tokens(language(context.language), around.head + text):
        end = token.start + len(token.text)
        if token.kind in ("string", "long") and here < end and token.closed:
            found.append(end - 1 - here)
        elif token.kind == "bracket":
            opener = PAIRS.get(token.text)
            if opener is None:
                stack.append((token.text, token.start))
            elif any(bracket == opener for bracket, _ in stack):
                while True:
                    bracket, start = stack.pop()
                    if bracket == opener:
                        break
                if start < here <= token.start:
                    found.append(token.start - here)
            elif here <= token.start:
                found.append(token.start - here)
    return found


def unopened_closer(context: Context, text: str) -> int | None:
    """Where `text` first writes a closing bracket that does not fit the innermost open one."""
    around = _around(context)
    stack = list(around.brackets)
    here = len(around.head)
    for token in tokens(language(context.language), around.head + text):
        if token.kind != "bracket":
            continue
        opener = PAIRS.get(token.text)
        if opener is None:
            stack.append(token.text)
        elif stack and stack[-1] == opener:
            stack.pop()
        elif token.start >= here and (stack or around.whole):
            return token.start - here
        elif opener in stack:
            while stack.pop() != opener:
                pass
    return None


def in_comment(context: Context) -> bool:
    """The cursor stands in a comment, or in a string that begins its line (a docstring)."""
    around = _around(context)
    head = around.head
    line = head.rfind("\n") + 1
    last = None
    for token in tokens(language(context.language), head):
        if token.kind == "quote" and token.start >= line:
            return False
        last = token
    if last is None or last.closed:
        return False
    left = head[head.rfind("\n", 0, last.start) + 1 : last.start]
    docstring = (
        last.text[:3] in ('"""', "'''") and not left.strip() and (around.begins_line or last.start > 0)
    )
    return last.kind == "comment" or docstring
