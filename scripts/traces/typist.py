"""A person at a keyboard: gaps, typos taken back, and an editor that indents and closes brackets."""

from __future__ import annotations

import random
from collections.abc import Iterable

from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Edit, Event
from traces.edits import Paste, Step, Write

ASK_AFTER_MS = 5
LOOK_MS = (300, 1500)
"""until the first key at a new place"""
SHORTEST_MS = 45
USUAL_MS = 155
ENTER_MS = (300, 900)
TYPO = 0.015
TRUTH = 160
"""characters of `truth`, at most: its first line is what is scored"""

_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}
_QUOTES = frozenset("\"'`")
_MAY_FOLLOW = frozenset(")]}>,;: \t\r\n")
"""an editor closes a bracket before these, and at the end"""
_NEIGHBOURS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


class Typist:
    """Types steps into one file and keeps the events. The same seed types the same."""

    def __init__(self, path: str, text: str, seed: int, *, at_ms: float = 0.0) -> None:
        self.events: list[Event] = []
        self.path = path
        self._buffer = Buffer(text)
        self._random = random.Random(seed)
        self._t = at_ms
        self._cursor = 0
        self._ahead = ""
        """what the editor has put after the cursor on its own"""

    @property
    def text(self) -> str:
        return self._buffer.text

    @property
    def now_ms(self) -> float:
        return self._t

    def type(self, steps: Iterable[Step], limit: int = 10**9) -> None:
        """Do the steps; typing ends after `limit` characters, with what then stands there."""
        for step in steps:
            if limit <= 0:
                return
            self._wait(*LOOK_MS)
            if isinstance(step, Paste):
                self._change(step.offset, step.offset + step.selected, step.text)
                self._cursor = step.offset + len(step.text)
                self._ask(None)
            else:
                self._write(step, limit)
                limit -= len(step.text)

    # ---- typing ------------------------------------------------------------------------------------------

    def _write(self, step: Write, limit: int) -> None:
        text = step.text
        self._cursor, self._ahead = step.offset, ""
        done = 0
        if step.selected:  # the first key replaces what is selected
            self._replace_selection(step)
            done = 1
        elif text.endswith("\n") and not self._at_line_end():
            text = self._open_line(text)
        else:
            done = self._indented(text)
        if len(text) > limit:  # the line is finished
            text = text[: text.find("\n", limit)] if "\n" in text[limit:] else text
        while done < len(text):
            done += self._key(text, done)
        if self._ahead:  # left over: the person takes it away
            self._pause()
            self._change(self._cursor, self._cursor + len(self._ahead), "")
            self._ahead = ""

    def _replace_selection(self, step: Write) -> None:
        self._change(step.offset, step.offset + step.selected, step.text[0])
        self._cursor = step.offset + 1
        self._ask(step.text[1:])

    def _at_line_end(self) -> bool:
        return self.text[self._cursor : self._cursor + 1] in ("", "\n")

    def _indented(self, text: str) -> int:
        """The indent comes in one go; its length."""
        indent = len(text) - len(text.lstrip(" \t"))
        if indent > 1 and self.text[: self._cursor].rpartition("\n")[2] == "":
            self._change(self._cursor, self._cursor, text[:indent])
            self._cursor += indent
            self._ask(text[indent:])
            return indent
        return 0

    def _open_line(self, text: str) -> str:
        """Whole lines are added above another: open an empty line first, indented as the text begins."""
        indent = text[: len(text) - len(text.lstrip(" \t"))]
        self._change(self._cursor, self._cursor, indent + "\n")
        self._cursor += len(indent)
        self._wait(*ENTER_MS)
        return text[len(indent) :].removesuffix("\n")

    def _key(self, text: str, done: int) -> int:
        """Type what comes next of `text`; how many characters that was."""
        if moved := self._step_over(text[done:]):
            return moved
        character = text[done]
        if character == "\n":
            return self._enter(text, done)
        self._pause()
        if character.isalpha() and self._random.random() < TYPO:
            self._typo(character)
        if self._ahead.startswith(character) and character in _PAIRS.values():
            self._change(self._cursor, self._cursor + 1, character)  # typed over
            self._ahead = self._ahead[1:]
        elif character in _PAIRS and self._closes(character):
            self._change(self._cursor, self._cursor, character + _PAIRS[character])
            self._ahead = _PAIRS[character] + self._ahead
        else:
            self._change(self._cursor, self._cursor, character)
        self._cursor += 1
        self._ask(text[done + 1 :])
        return 1

    def _closes(self, character: str) -> bool:
        before = self.text[self._cursor - 1 : self._cursor]
        after = self.text[self._cursor : self._cursor + 1]
        if character in _QUOTES and (before.isalnum() or before in ("_", "\\", character)):
            return False
        return not after or after in _MAY_FOLLOW or self._ahead.startswith(after)

    def _step_over(self, rest: str) -> int:
        """The cursor goes down to a closer that Enter has put on a line of its own."""
        if not self._ahead.startswith("\n"):
            return 0
        line = self._ahead[: len(self._ahead) - len(self._ahead.lstrip()) + 1]
        if not rest.startswith(line):
            return 0
        self._wait(*ENTER_MS)
        self._cursor += len(line)
        self._ahead = self._ahead[len(line) :]
        return len(line)

    def _enter(self, text: str, done: int) -> int:
        """A new line, indented by the editor; between brackets the closer gets a line of its own."""
        self._wait(*ENTER_MS)
        line = text[done + 1 :].split("\n", 1)[0]
        wanted = line[: len(line) - len(line.lstrip(" \t"))] if line.strip() else ""
        own = self._indent_here()
        opener = self.text[self._cursor - 1 : self._cursor]
        deeper = opener in ("{", "[", "(", ":")
        if self._ahead and opener in "{[(" and self._ahead[0] == _PAIRS[opener]:
            inner = wanted if len(wanted) > len(own) else own
            self._change(self._cursor, self._cursor, f"\n{inner}\n{own}")
            self._ahead = f"\n{own}{self._ahead}"
        else:
            # an editor keeps the indent, and one step more after an opener
            inner = wanted if not line.strip() or (deeper and len(wanted) > len(own)) else own
            self._change(self._cursor, self._cursor, f"\n{inner}")
        self._cursor += 1 + len(inner)
        if inner != wanted:
            self._pause()
            self._change(self._cursor - len(inner), self._cursor, wanted)
            self._cursor += len(wanted) - len(inner)
        self._ask(text[done + 1 + len(wanted) :])
        return 1 + len(wanted)

    def _indent_here(self) -> str:
        line = self.text[self.text.rfind("\n", 0, self._cursor) + 1 : self._cursor]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _typo(self, character: str) -> None:
        """A neighbouring key, seen at once or one key later, and taken back."""
        row = next((row for row in _NEIGHBOURS if character.lower() in row), "")
        if not row:
            return
        place = row.index(character.lower())
        wrong = self._random.choice(row[max(0, place - 1) : place] + row[place + 1 : place + 2])
        self._change(self._cursor, self._cursor, wrong)
        self._cursor += 1
        self._ask(None)
        self._wait(150, 500)
        self._cursor -= 1
        self._change(self._cursor, self._cursor + 1, "")
        self._ask(None)
        self._pause()

    # ---- events ------------------------------------------------------------------------------------------

    def _change(self, start: int, end: int, text: str) -> None:
        where = (self._buffer.position(start), self._buffer.position(end))
        edit = Edit(where, text)
        self._buffer.apply([edit])
        self.events.append(Event(t=round(self._t), change=self.path, edits=(edit,)))

    def _ask(self, rest: str | None) -> None:
        """A completion at the cursor, with what the person will still type, if that is what comes next."""
        at = self._buffer.position(self._cursor)
        truth = self._truth(rest) if rest else None
        self._t += ASK_AFTER_MS
        self.events.append(Event(t=round(self._t), complete=self.path, at=at, truth=truth or None))

    def _truth(self, rest: str) -> str:
        """Without the closers that stand after the cursor already."""
        line, _, more = rest.partition("\n")
        there = self._ahead.split("\n", 1)[0]
        if there and line.endswith(there):
            return line[: -len(there)]
        return f"{line}\n{more}"[:TRUTH] if more or rest.endswith("\n") else line[:TRUTH]

    def _pause(self) -> None:
        gap = self._random.lognormvariate(0.0, 0.45) * USUAL_MS
        self._t += max(SHORTEST_MS, gap)

    def _wait(self, least: float, most: float) -> None:
        self._t += self._random.uniform(least, most)
