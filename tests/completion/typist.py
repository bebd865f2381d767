"""An editor's typing, as its documents change: auto-indent, auto-closers, typing over them."""

from __future__ import annotations

from copilotd.completion.ask import Ask
from copilotd.engine.generation import Cancelled, Emit, Generation, GenerationRequest
from copilotd.models.vocabulary import Vocabulary
from tests.completion.asking import at
from tests.support.scripted import ScriptedBackend

PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"'}


class Typist:
    def __init__(self, marked: str) -> None:
        before, after = marked.split("‸")
        self.text, self.cursor = before + after, len(before)

    def ask(self) -> Ask:
        return at(self.text, self.cursor)

    def insert(self, text: str, after: str = "") -> None:
        self.text = self.text[: self.cursor] + text + after + self.text[self.cursor :]
        self.cursor += len(text)

    def press(self, key: str) -> None:
        """A character, "\\n" for Enter, "\\b" for Backspace."""
        follows = self.text[self.cursor : self.cursor + 1]
        if key == "\b":
            pair = PAIRS.get(self.text[self.cursor - 1]) == follows != ""
            self.text = self.text[: self.cursor - 1] + self.text[self.cursor + pair :]
            self.cursor -= 1
        elif key == "\n":
            line = self.text[: self.cursor].rpartition("\n")[2]
            indent = line[: len(line) - len(line.lstrip())]
            opens = line.rstrip()[-1:] in ("{", "(", "[", ":")
            between = opens and follows in ("}", ")", "]") and follows != ""
            self.insert("\n" + indent + "    " * opens, "\n" + indent if between else "")
        elif key == follows and key in PAIRS.values():
            self.cursor += 1
        else:
            self.insert(key, PAIRS.get(key, ""))


class CountingBackend(ScriptedBackend):
    """Counts as the engine does: by slot, every row that is still there is used again."""

    def __init__(self, script: str, vocabulary: Vocabulary | None = None, **options: object) -> None:
        super().__init__(script, **options)  # type: ignore[arg-type]
        if vocabulary is not None:
            self.vocabulary = vocabulary  # type: ignore[assignment]
        self.slots: dict[object, list[int]] = {}
        self.prefilled: list[int] = []
        """by generation"""
        self.warm_prefilled: list[int] = []

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        generation = super().generate(request, cancelled, emit)
        self.prefilled.append(self._prefill(request))
        self.slots[request.slot] = [*request.prompt, *generation.ids]
        return generation

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        self.warm_prefilled.append(self._prefill(request))
        self.slots[request.slot] = list(request.prompt)
        return super().warm(request, cancelled)

    def _prefill(self, request: GenerationRequest) -> int:
        known, prompt = self.slots.get(request.slot, []), list(request.prompt)
        same = 0
        while same < min(len(known), len(prompt) - 1) and known[same] == prompt[same]:
            same += 1
        return len(prompt) - same
