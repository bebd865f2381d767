"""Places to complete in real files: fresh ones, and ones whose text stands nearby already. The prompt of /infill."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct

from copilotd.cli.bench import layout, standard_library
from copilotd.completion.anchor import budget_for
from copilotd.models.vocabulary import Vocabulary

SUFFIX_SHARE = 4
COPIED_LINES = 12


class Prompt(Struct, frozen=True):
    """One place. Every contender gets the same ids; the others are for prompt lookup in document order."""

    kind: str
    """fresh or copied"""
    ids: list[int]
    before: list[int]
    after: list[int]


def cut(vocabulary: Vocabulary, kind: str, count: int, tokens: int) -> Iterator[Prompt]:
    """`count` prompts of about `tokens` ids, always the same ones."""
    rng = random.Random(f"{kind} 1")
    files = [text for file in standard_library() if len(text := file.read_text("utf-8", "replace")) > 20_000]
    room_after = tokens // SUFFIX_SHARE
    room_before = tokens - room_after - 3
    for _ in range(count):
        text = rng.choice(files)
        cursor = rng.randrange(len(text) // 3, len(text) * 2 // 3)
        before, after = text[:cursor], text[cursor:]
        if kind == "copied":
            before, after = copied(text, cursor)
        before_ids = vocabulary.encode(before[-8 * room_before :])[-room_before:]
        after_ids = vocabulary.encode(after[: 8 * room_after])[:room_after]
        yield Prompt(kind, layout(vocabulary, before_ids, after_ids), before_ids, after_ids)


def copied(text: str, cursor: int) -> tuple[str, str]:
    """A block of lines is written a second time below itself: the cursor stands after its first line."""
    start = text.rfind("\n", 0, cursor) + 1
    lines = text[start:].splitlines(keepends=True)[: 2 * COPIED_LINES]
    block = "".join(lines[:COPIED_LINES])
    end = start + len(block)
    return text[:end] + lines[0], text[end:]


def window(context: int, tokens: int) -> int:
    """Tokens around the cursor, as many as copilotd's prompt has; /infill calls them a batch."""
    budget = budget_for(context, 16, tokens, fills_in=True)
    return (budget.prefix + budget.suffix) // 4 * 4


def filled_in(vocabulary: Vocabulary, prefix: str, suffix: str, middle: str, window: int) -> list[int]:
    """The ids that llama-server's /infill makes of a place. The two names in them are its own."""
    fim, quarter = vocabulary.fim, window // 4
    assert fim is not None
    assert fim.repository is not None
    assert fim.file is not None
    line = vocabulary.encode(middle)
    before = vocabulary.encode(prefix)[-3 * quarter :] + line
    after = vocabulary.encode(suffix)[: max(0, quarter - 2 - len(line))]
    project = [fim.repository, *vocabulary.encode("myproject\n")]
    file = [fim.file, *vocabulary.encode("filename\n")]
    return [*project, *file, *layout(vocabulary, before, after)]
