"""Token healing: a cut inside a word must not force the model into a split it never saw.

The typed text's last tokens are dropped back to a boundary that no further typing moves, and the first
generated ids are constrained to begin with the bytes that were dropped.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from copilotd.models.vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

MOST_BYTES = 48
"""A longer run (a base64 blob) is cut at its last token instead."""

Kind: TypeAlias = Literal["letter", "digit", "blank", "newline", "mark"]

STABLE: frozenset[tuple[Kind, Kind]] = frozenset(
    {
        ("letter", "digit"), ("letter", "blank"), ("letter", "newline"), ("letter", "mark"),
        ("digit", "letter"), ("digit", "blank"), ("digit", "newline"), ("digit", "mark"),
        ("mark", "blank"), ("mark", "digit"), ("blank", "digit"),
        ("newline", "letter"), ("newline", "digit"), ("newline", "mark"), ("newline", "blank"),
    }
)  # fmt: skip
"""(last kept, first dropped) between which the usual patterns of byte-level BPE always cut.

A blank or a mark may be one token with the word after it, a newline with the mark before it.
"""


def kind(character: str) -> Kind:
    if character in "\r\n":
        return "newline"
    if character.isspace():
        return "blank"
    if character.isalpha() or unicodedata.category(character).startswith("M"):
        return "letter"
    return "digit" if character.isnumeric() else "mark"


def stable_length(
    ids: Sequence[int], vocabulary: Vocabulary, line_starts_stable: bool, least: int = 0
) -> int:
    """How many of the typed text's ids stay as they are whatever is typed next.

    Fewer than all, unless `least` (0 or 1) asks for a prompt of its own and there is no other boundary.
    """
    dropped = b""
    nearest = farthest = None
    for kept in range(len(ids) - 1, 0, -1):
        dropped = vocabulary.token_bytes(ids[kept]) + dropped
        if len(dropped) > MOST_BYTES and nearest is not None:
            return nearest
        before, after = _around(ids, kept, vocabulary, dropped)
        if not after or unicodedata.combining(after):
            continue
        farthest = kept
        nearest = nearest or kept
        if _is_stable(before, after, dropped, line_starts_stable):
            return kept
    if not least:
        return 0
    return farthest or len(ids)


def _around(ids: Sequence[int], kept: int, vocabulary: Vocabulary, dropped: bytes) -> tuple[str, str]:
    """The characters on both sides of a token boundary; the second is "" within a character."""
    if dropped[:1] and 0x80 <= dropped[0] < 0xC0:
        return "", ""
    tail = b"".join(vocabulary.token_bytes(token) for token in ids[max(0, kept - 4) : kept])
    return tail[-4:].decode(errors="ignore")[-1:], dropped[:4].decode(errors="ignore")[:1]


def _is_stable(before: str, after: str, dropped: bytes, line_starts_stable: bool) -> bool:
    if not before:
        return False
    pair = (kind(before), kind(after))
    if pair == ("newline", "blank"):
        return line_starts_stable
    if pair == ("blank", "blank"):
        # of several blanks the last one goes with the word after it
        following = dropped.decode(errors="ignore")[1:2]
        return bool(following) and not following.isspace()
    return pair in STABLE


class TokenIndex:
    """The vocabulary's tokens by their bytes, for masks that cost no walk over the vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        entries = sorted((vocabulary.token_bytes(token), token) for token in range(vocabulary.size))
        self.size = vocabulary.size
        self.with_newline = frozenset(token for text, token in entries if b"\n" in text)
        self._texts = [text for text, _ in entries]
        self._ids = [token for _, token in entries]
        self.mask = lru_cache(maxsize=256)(self._mask)

    def matching(self, needed: bytes) -> list[int]:
        """Tokens that begin with `needed`, or with which `needed` begins; no control id, which has no bytes."""
        found = []
        for length in range(1, len(needed)):
            prefix = needed[:length]
            found += self._ids[bisect_left(self._texts, prefix) : bisect_left(self._texts, prefix + b"\0")]
        return found + self._ids[bisect_left(self._texts, needed) : bisect_left(self._texts, _beyond(needed))]

    def _mask(self, needed: bytes) -> torch.Tensor | None:
        """bool [size], True for `matching(needed)`; None where nothing matches, as no row may be all False."""
        import torch

        matching = self.matching(needed)
        if not matching:
            return None
        mask = torch.zeros(self.size, dtype=torch.bool)
        mask[torch.tensor(matching, dtype=torch.long)] = True
        return mask


def _beyond(prefix: bytes) -> bytes:
    """The least bytes above everything that begins with `prefix`, which is UTF-8 and so has no byte 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class Healing:
    """The byte automaton as an engine Constraint. A state is how many of the needed bytes are out."""

    def __init__(self, index: TokenIndex, vocabulary: Vocabulary, needed: bytes) -> None:
        self.needed = needed
        self._index = index
        self._vocabulary = vocabulary

    def start(self) -> int:
        return 0

    def next(self, state: int, token: int) -> int:
        return min(len(self.needed), state + len(self._vocabulary.token_bytes(token)))

    def mask(self, state: int) -> torch.Tensor | None:
        """None once the needed bytes are out; until then no control id may come either."""
        return None if state >= len(self.needed) else self._index.mask(self.needed[state:])
