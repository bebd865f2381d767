"""What stands right of the cursor is not written twice, and no bracket that is missing is cut."""

from __future__ import annotations

import re

from copilotd.completion.postprocess.brackets import closings, errors, stray_quotes
from copilotd.completion.postprocess.texts import Change, Context

_CLOSING = re.compile(r"[)\]}\"'`;,>\s]*")
_WORD = re.compile(r"\w")
REWRITTEN = 3
"""so many characters in common with what follows, a whole word among them, are a second version of it"""


def overlap(context: Context, text: str) -> Change | None:
    """The best of: insert as it is; drop an end that stands there; go on past closers, covering them."""
    tail = context.tail
    if not tail.strip() or not text.strip():
        return None
    if _rewrites(context, text, tail):
        return Change("", "it is another version of what stands right of the cursor")
    cuts = [*_ends_in(text, tail), *_ends_in(text, tail.lstrip()), *_closers_within(text, tail)]

    def wrong(cut: int) -> tuple[int, int]:
        kept = text[: len(text) - cut]
        return stray_quotes(context, kept, tail), errors(context, kept)

    best = min(sorted({0, *cuts}, reverse=True), key=wrong)
    past = _past_closers(context, text, tail)
    if past and (stray_quotes(context, past, ""), errors(context, past, len(tail))) < wrong(best):
        return Change(past, "it goes on past the closers that stand there", len(tail))
    return Change(text[: len(text) - best], "its end stands right of the cursor") if best else None


def _ends_in(text: str, tail: str) -> list[int]:
    """Lengths at which an end of `text` is a beginning of `tail`, whole words only."""
    return [
        length
        for length in range(1, min(len(text), len(tail)) + 1)
        if text.endswith(tail[:length]) and not _splits_a_word(tail, length)
    ]


def _closers_within(text: str, tail: str) -> list[int]:
    """Lengths at which an end of `text` that closes stands within a tail that closes more than that."""
    if not _CLOSING.fullmatch(tail):
        return []
    return [length for length in range(1, min(len(text), len(tail))) if text[-length:] in tail]


def _splits_a_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and bool(_WORD.match(text[at - 1]) and _WORD.match(text[at]))


def _rewrites(context: Context, text: str, tail: str) -> bool:
    """The text begins as the tail does, for a word at least, and then goes another way."""
    alike = next(
        (i for i, (a, b) in enumerate(zip(text, tail, strict=False)) if a != b), min(len(text), len(tail))
    )
    while alike and (_splits_a_word(tail, alike) or _splits_a_word(text, alike)):
        alike -= 1
    common = tail[:alike].strip()
    inside_word = bool(_WORD.match(context.head[-1:]) and _WORD.match(tail[:1]))
    return alike < len(text) and bool(_WORD.search(common)) and (inside_word or len(common) >= REWRITTEN)


def _past_closers(context: Context, text: str, tail: str) -> str:
    """`text` with what it lacks of a tail of closers, if it writes the first of them itself; else ""."""
    if not _CLOSING.fullmatch(tail):
        return ""
    written = "".join(text[place] for place in closings(context, text))
    standing = tail.strip()
    count = next((n for n in range(len(standing), 0, -1) if _within(standing[:n], written)), 0)
    if not count:
        return ""
    lacking = standing[count:]
    if text.rstrip().endswith(lacking):
        lacking = ""
    whole = text + lacking
    return whole if _within(tail, whole) else ""


def _within(part: str, whole: str) -> bool:
    """Every character of `part` stands in `whole`, in this order."""
    rest = iter(whole)
    return all(character in rest for character in part)
