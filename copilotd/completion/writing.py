"""One generation for one place in a document, which may be interrupted and go on where it was."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from copilotd.completion.detokenise import text_of
from copilotd.completion.postprocess import Context
from copilotd.completion.session import Spot
from copilotd.engine.generation import Library

Slot = tuple[tuple[str, str], int]
"""((client, document), which of its two)"""


class Writing(Struct, kw_only=True):
    """Prompt and output so far. Going on appends `ids` to the prompt, whose rows the cache still has."""

    spot: Spot
    context: Context
    prompt: list[int]
    draft_prompt: list[int]
    slot: Slot
    before: Sequence[int]
    """ids of the text above, in document order, ending where the prompt ends"""
    after: Sequence[int]
    library: Library | None
    echo: Sequence[int]
    needed: bytes
    """what the output must begin with"""
    dropped: int
    """of which so many bytes are typed already"""
    most: int
    """ids to write at most"""
    ids: list[int] = field(default_factory=list)
    data: bytes = b""
    finished: bool = False
    in_background: bool = False
    """the clock ended it before it was finished"""

    @property
    def text(self) -> str:
        """What was written after the cursor; "" until everything needed is out."""
        return text_of(self.data[self.dropped :])[0] if self.data.startswith(self.needed) else ""

    @property
    def sound(self) -> bool:
        """Whether the output is text that begins as it must, as far as it goes."""
        if len(self.data) < len(self.needed):
            return self.needed.startswith(self.data)
        return self.data.startswith(self.needed) and text_of(self.data[self.dropped :])[1]
