"""From ids to text: bytes are joined over tokens, half a character at the end waits for its rest."""

from __future__ import annotations

from collections.abc import Iterable

from copilotd.models.vocabulary import Vocabulary

REPLACEMENT = "\ufffd"


def bytes_of(vocabulary: Vocabulary, ids: Iterable[int]) -> bytes:
    return b"".join(map(vocabulary.token_bytes, ids))


def text_of(data: bytes) -> tuple[str, bool]:
    """The text of UTF-8 bytes that may end within a character, and whether all of it is text.

    Ends before the first bytes that are no UTF-8, and before U+FFFD, which nobody means to insert.
    """
    try:
        text, sound = data.decode(), True
    except UnicodeDecodeError as error:
        text = data[: error.start].decode()
        sound = error.reason == "unexpected end of data"
    text, replacement, _ = text.partition(REPLACEMENT)
    return text, sound and not replacement
