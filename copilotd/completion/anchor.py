"""Where a prompt is anchored in its document, and whether a later text still fits the same prompt.

The prompt's prefix window ends at the *anchor*, the start of a line that is not blank; what stands between
anchor and cursor comes after the middle marker. So typing appends at the prompt's end and nothing before it
is computed again, as long as the prefix and what stands after the cursor stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from copilotd.completion.ask import Snippet
from copilotd.completion.window import (
    CHARACTERS_PER_TOKEN,
    Count,
    fitting_end,
    fitting_start,
    lines_above,
    lines_below,
    unix,
)

LINES_BELOW_ANCHOR = 20
"""while the cursor is no farther below it, the anchor stays"""

PINNED = 256
"""characters at a window's start that say that it is still the same place"""

MOVED = 4096
"""characters that edits above may have moved the window by"""

CLOSERS = re.compile(r"""(?:[\s)\]}>"'`;,]|</[\w.:-]{0,32}>){1,64}""")
"""What editors insert after the cursor by themselves, with the line ends and blanks of a split block."""

TYPED_OVER = re.compile(r"""[)\]}>"'`;,]{1,8}""")


class Budget(Struct, frozen=True):
    """Tokens of the parts of a prompt; their sum and the template's fit into the context."""

    prefix: int
    suffix: int
    typed: int
    answer: int


def budget_for(context: int, template: int, new_tokens: int, fills_in: bool) -> Budget:
    """Shares of a context of so many tokens, of which the template takes some.

    A model that only continues a prefix gets all of it as typed text.
    """
    answer = max(1, min(new_tokens, context // 4))
    room = max(0, context - template - answer)
    if not fills_in:
        return Budget(prefix=0, suffix=0, typed=room, answer=answer)
    typed = min(512, room // 4)
    suffix = (room - typed) // 4
    return Budget(prefix=room - typed - suffix, suffix=suffix, typed=typed, answer=answer)


def shortened(budget: Budget, tokens: int) -> Budget:
    """The budget with windows of so many tokens in all, where they were larger."""
    if not budget.prefix and tokens < budget.typed:
        return Budget(prefix=0, suffix=0, typed=tokens, answer=budget.answer)
    if tokens >= budget.prefix + budget.suffix:
        return budget
    return Budget(prefix=tokens - tokens // 4, suffix=tokens // 4, typed=budget.typed, answer=budget.answer)


class Follow(Struct, frozen=True):
    """How the text at a place goes on as expected: after so many inserted characters of closers, or with so
    many of its own closers already typed over."""

    inserted: int = 0
    typed_over: int = 0


def follow(text: str, at: int, expected: str, to_the_end: bool) -> Follow | None:
    """Whether text[at:] is `expected` (and no more, if that went to the document's end), closers aside."""

    def stands(start: int, tail: str) -> bool:
        return text.startswith(tail, start) and (not to_the_end or start + len(tail) == len(text))

    if stands(at, expected):
        return Follow()
    if closers := CLOSERS.match(text, at, at + 64):
        for end in range(at + 1, closers.end() + 1):
            if stands(end, expected):
                return Follow(inserted=end - at)
    if over := TYPED_OVER.match(expected):
        for count in range(1, over.end() + 1):
            if text[max(0, at - 64) : at].rfind(expected[:count]) >= 0 and stands(at, expected[count:]):
                return Follow(typed_over=count)
    return None


class Layout(Struct, kw_only=True):
    """A prompt's frame, laid once for a place and kept while one types there. Offsets follow the text."""

    start: int
    anchor: int
    known: str
    """what must still stand at `start`: the prefix window; without infilling the first part of the window"""
    suffix: str
    to_the_end: bool
    """the suffix goes to the document's end"""
    prefix_ids: Sequence[int]
    suffix_ids: Sequence[int]
    head: list[int]
    """every id before the typed text"""
    draft_head: list[int]
    """the draft model's, shorter; empty: it takes the target's"""
    slot: int
    snippets: tuple[Snippet, ...] = ()
    """those in the head: newer ones wait until the prompt is laid anew"""
    complete: bool = True
    """False: a short prompt for a cold place, that a long one will replace"""
    stale: bool = False
    """closers of the suffix were typed over since"""
    surrounded: bool = False
    warm: bool = False
    """the draft model's cache too"""
    above: Sequence[int] = ()
    """ids of text before the prefix window, for lookup"""
    below: Sequence[int] = ()
    """ids of text after the suffix window, for lookup"""

    def holds(self, text: str, cursor: int) -> bool:
        """Whether the text still fits around the cursor; moves along with edits above its window."""
        start = self._found(text)
        anchor = self.anchor + start - self.start
        if start < 0 or anchor > cursor or text[anchor - 1 : anchor + 1] == "\r\n":
            return False
        found = follow(text, cursor, self.suffix, self.to_the_end)
        if found is None:
            return False
        self.start, self.anchor = start, anchor
        self.stale = found.typed_over > 0
        return True

    def _found(self, text: str) -> int:
        """Where the window starts now; -1 where it is gone. A long one is looked for nearby."""
        if text.startswith(self.known, self.start):
            return self.start
        if len(self.known) < PINNED:
            return -1
        return text.find(self.known, max(0, self.start - MOVED), self.start + len(self.known) + MOVED)

    def typed(self, text: str, cursor: int) -> str:
        return unix(text[self.anchor : cursor])


class Window(Struct, frozen=True):
    """Places in a document: text[start:anchor] before the middle, text[cursor:end] after it."""

    start: int
    anchor: int
    cursor: int
    end: int


def place(text: str, cursor: int, budget: Budget, count: Count, previous: Layout | None) -> Window:
    """Windows around a cursor; the start of `previous` is kept while what it would hold fits."""
    if not budget.prefix:
        start = _window_start(text, cursor, budget.typed, count, previous)
        return Window(start=start, anchor=start, cursor=cursor, end=cursor)
    anchor = _anchor(text, cursor, budget.typed // 2, count)
    below = lines_below(text, cursor, budget.suffix * CHARACTERS_PER_TOKEN)
    return Window(
        start=_window_start(text, anchor, budget.prefix, count, previous),
        anchor=anchor,
        cursor=cursor,
        end=fitting_end(text, below, budget.suffix, count) if below else cursor,
    )


def _anchor(text: str, cursor: int, budget: int, count: Count) -> int:
    """The start of the nearest line with something in it before the cursor.

    At a blank line the tokens of newlines would be split. Within a very long line, a place in that line.
    """
    spans = lines_above(text, cursor, budget * CHARACTERS_PER_TOKEN)
    if not spans:
        return cursor
    anchor = next((low for low, high in reversed(spans) if not text[low:high].isspace()), spans[0][0])
    if count(unix(text[anchor:cursor])) > budget:
        return fitting_start(text, spans, budget, count)
    return anchor


def _window_start(text: str, end: int, room: int, count: Count, previous: Layout | None) -> int:
    """A line start from which the text up to `end` takes at most `room` tokens.

    A fresh one leaves a quarter of the room, so that it can stay while the end moves on.
    """
    if previous is not None and _may_stay(text, previous, end, room, count):
        return previous.start
    spans = lines_above(text, end, room * CHARACTERS_PER_TOKEN)
    if not spans:
        return end
    start = fitting_start(text, spans, room, count)
    return 0 if start == 0 else fitting_start(text, spans, room - room // 4, count)


def _may_stay(text: str, previous: Layout, end: int, room: int, count: Count) -> bool:
    start, opening = previous.start, previous.known[:PINNED]
    if not opening or not start < end <= start + room * CHARACTERS_PER_TOKEN:
        return False
    if not text.startswith(opening, start):
        return False
    return (start == 0 or room // 2 <= count(unix(text[start:end]))) and count(unix(text[start:end])) <= room
