"""CB-H10: characters whose bytes are split over several tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.completion.completer import Completer
from copilotd.completion.detokenise import text_of
from copilotd.config import SessionSettings
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from tests.completion.asking import ask, never
from tests.support.scripted import ScriptedBackend

FULL = 'label = "🧪 数 ok"'


class InBlocks(ScriptedBackend):
    """Emits its ids in blocks, as accepted drafts come."""

    def __init__(self, script: str, block: int) -> None:
        super().__init__(script)
        self._block = block

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        written: list[int] = []
        generation = super().generate(request, cancelled, lambda ids, _=(): written.extend(ids) or False)
        for start in range(0, len(written), self._block):
            if emit(written[start : start + self._block]):
                break
        return generation


@pytest.mark.parametrize("block", range(1, 6))
def test_every_cut_is_a_prefix_without_replacement_characters(block: int) -> None:
    for tokens in range(1, len(FULL.encode()) + 1):
        settings = SessionSettings(max_new_tokens=tokens)
        completion = Completer(InBlocks(FULL, block)).complete(ask("‸", settings=settings), never, None)
        text = completion.suggestions[0].text if completion.suggestions else ""
        assert "\ufffd" not in text
        assert FULL.startswith(text)
    assert text == FULL


@given(st.text(), st.binary(max_size=4))
def test_never_a_replacement_character(text: str, more: bytes) -> None:
    found, sound = text_of(text.encode("utf-8", "ignore") + more)
    assert "\ufffd" not in found
    if not more and "\ufffd" not in text:
        assert (found, sound) == (text, True)


def test_half_a_character_waits_and_nonsense_ends() -> None:
    assert text_of("ab🧪".encode()[:-1]) == ("ab", True)
    assert text_of(b"ab\xffcd") == ("ab", False)
    assert text_of("ab\ufffdcd".encode()) == ("ab", False)
