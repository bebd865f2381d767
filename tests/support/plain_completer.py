"""The smallest completer: prefix-suffix-middle prompt, one generation, inserted at the cursor.

For tests of the daemon alone, where nothing of completion/ is to matter.
"""

from __future__ import annotations

import time

from copilotd.backends.base import Backend
from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.completion.explanation import Explanation
from copilotd.engine.generation import Cancelled, GenerationRequest


class PlainCompleter:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def complete(self, ask: Ask, cancelled: Cancelled, deadline: float | None) -> Completion:
        vocabulary = self._backend.vocabulary
        fim = vocabulary.fim
        assert fim is not None
        before, after = ask.text[: ask.offset], ask.text[ask.offset :]
        request = GenerationRequest(
            prompt=[
                *(fim.prefix, *vocabulary.encode(before)),
                *(fim.suffix, *vocabulary.encode(after)),
                fim.middle,
            ],
            max_new_tokens=ask.settings.max_new_tokens,
            stop_ids=vocabulary.control,
        )

        def late(ids: object, logprobs: object = ()) -> bool:
            return deadline is not None and time.monotonic() > deadline

        generation = self._backend.generate(request, cancelled, late)
        text = vocabulary.decode(generation.ids)
        explanation = Explanation(counters=generation.counters)
        suggestions = [Suggestion(ask.offset, ask.offset, text)] if text else []
        return Completion(suggestions, "" if text else "nothing", explanation)

    def idle(self, cancelled: Cancelled) -> bool:
        return False

    def accepted(self, client: str, suggestion: Suggestion) -> None:
        pass

    def close_document(self, client: str, uri: str) -> None:
        pass

    def close_client(self, client: str) -> None:
        pass
