"""Whether a draft model may propose for a target: the same ids must mean the same text."""

from __future__ import annotations

from copilotd.models.tokenizer import TokenizerVocabulary


def difference(target: TokenizerVocabulary, draft: TokenizerVocabulary) -> str | None:
    """What keeps the two apart, in one sentence, or None where every id both have means the same.

    Entries are compared one by one, not table sizes: those differ by padding within one family. A few
    control tokens more at the end of one of them are no difference: the draft never proposes them, or the
    target never knew them.
    """
    shared = min(target.size, draft.size)
    for token in range(shared):
        if target.token_bytes(token) != draft.token_bytes(token) or target.marker(token) != draft.marker(
            token
        ):
            return f"token {token} stands for different text in the two models"
    if any(
        token not in vocabulary.control
        for vocabulary in (target, draft)
        for token in range(shared, vocabulary.size)
    ):
        return f"one has {target.size} tokens and the other {draft.size}"
    return None
