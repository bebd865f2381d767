"""One generation for one place in a document, which may be interrupted and go on where it was."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from copilotd.completion.detokenise import text_of
from copilotd.completion.postprocess import Context
from copilotd.completion.postprocess.sure import whole_lines
from copilotd.completion.session import Spot
from copilotd.engine.generation import Library, Sampling
from copilotd.models.vocabulary import Vocabulary

SURE = math.log(0.1)
"""Natural log of the least probability, by the model's own reckoning, that all lines shown are right.

Measured (scripts/measure_text): of what the starter shows, the largest share is right between 0.03 and 0.1.
"""

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
    sampling: Sampling
    cautious: bool
    """only so many lines as the model is sure of"""
    ids: list[int] = field(default_factory=list)
    data: bytes = b""
    logprob: float = 0.0
    """of all that is written, by the model"""
    doubt: int | None = None
    """bytes that were written before the model was no longer sure; None: it still is"""
    finished: bool = False
    in_background: bool = False
    """the clock ended it before it was finished"""

    def add(self, vocabulary: Vocabulary, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """What was written, one round after the other. Ids of unknown probability count as sure.

        Where the doubts begin does not depend on how the ids came in rounds.
        """
        for number, token in enumerate(ids):
            self.logprob += logprobs[number] if number < len(logprobs) else 0.0
            if self.doubt is None and self.logprob < SURE:
                self.doubt = len(self.data)
            self.ids.append(token)
            self.data += vocabulary.token_bytes(token)

    def drawn(self, sampling: Sampling) -> Writing:
        """Another one for the same place, not begun, whose ids are drawn."""
        return replace(self, sampling=sampling, ids=[], data=b"", logprob=0.0, doubt=None, finished=False)

    @property
    def judged(self) -> Context:
        """The place, and how much of the text the model is sure of."""
        if not self.cautious or self.doubt is None:
            return self.context
        doubt = len(text_of(self.data[self.dropped : self.doubt])[0])
        return replace(self.context, sure=whole_lines(self.text, doubt))

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
