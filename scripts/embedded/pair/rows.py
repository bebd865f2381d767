"""Training rows: stretches of documents, laid out as copilotd lays out a prompt."""

from __future__ import annotations

import bisect
import random
from collections.abc import Sequence
from itertools import accumulate

import torch
from tokenizers import Tokenizer
from torch import Tensor

from pair.corpus import Document
from pair.recipe import Rows, Stage

CHARACTERS = 5
"""more characters than this a token has no text on average: enough text is encoded, then cut"""


class Shelf:
    """The documents of one package in one language; a place is drawn uniformly over their characters."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        self._ends = list(accumulate(len(document.text) for document in documents))
        self.characters = self._ends[-1]

    def place(self, rng: random.Random) -> tuple[Document, int]:
        position = rng.randrange(self.characters)
        index = bisect.bisect_right(self._ends, position)
        document = self.documents[index]
        return document, position - (self._ends[index] - len(document.text))


class RowSampler:
    """Rows drawn with replacement: languages by their shares, packages by the root of their size, so that no
    large one sets the tone."""

    def __init__(
        self, documents: list[Document], shares: dict[str, float], kinds: Rows, tokenizer: Tokenizer
    ) -> None:
        self._tokenizer = tokenizer
        self._kinds = kinds
        shelves: dict[str, dict[str, list[Document]]] = {language: {} for language in shares}
        for document in documents:
            if document.language in shelves:
                shelves[document.language].setdefault(document.package, []).append(document)
        self._shelves: list[Shelf] = []
        self._weights: list[float] = []
        for language, packages in shelves.items():
            found = [Shelf(files) for files in packages.values()]
            roots = sum(shelf.characters**0.5 for shelf in found)
            self._shelves += found
            self._weights += [shares[language] * shelf.characters**0.5 / roots for shelf in found]
        self.end, self._repository, self._file = map(self._control, ("endoftext", "repo_name", "file_sep"))
        self.prefix, self._suffix, self.middle = map(
            self._control, ("fim_prefix", "fim_suffix", "fim_middle")
        )

    def batch(self, seed: int, step: int, stage: Stage) -> Tensor:
        """int64 [stage.rows, stage.row + 1], the same for the same arguments."""
        rng = random.Random(f"{seed} {step}")
        length = stage.row + 1
        return torch.tensor(
            [
                self._echo(rng, length) if rng.random() < stage.echo else self._row(rng, length)
                for _ in range(stage.rows)
            ]
        )

    def prompts(self, seed: str, count: int, length: int) -> list[list[int]]:
        """FIM prompts of exactly `length` ids, with a few ids typed after <|fim_middle|>."""
        rng = random.Random(f"prompts {seed}")
        found: list[list[int]] = []
        while len(found) < count:
            _, document, at = self._place(rng)
            ids = self._fim(rng, document, at, 2 * length)
            prompt = ids[: ids.index(self.middle) + 1 + rng.randrange(6)]
            suffix = prompt.index(self._suffix)
            before = length - 1 - len(prompt[suffix:])
            if 0 < before < suffix:
                found.append([self.prefix, *prompt[suffix - before :]])
        return found

    def _row(self, rng: random.Random, length: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < length:
            ids += self._example(rng, length - len(ids))
        return ids[:length]

    def _echo(self, rng: random.Random, length: int) -> list[int]:
        """A stretch of tokens that comes again and again, from a random place in it and after random others.

        In half of the rows the tokens are shuffled, so that nothing but copying foretells them.
        """
        _, document, at = self._place(rng)
        ids = self._encode(document.text[at : at + CHARACTERS * length])[: length // 2]
        if rng.random() < 0.5:
            rng.shuffle(ids)
        stretch = ids[: rng.randrange(8, 16 + length // 4)]
        others = ids[len(stretch) :]
        row: list[int] = []
        while len(row) < length:
            start = rng.randrange(1 + len(stretch) // 2)
            row += stretch[start:]
            if others:
                begin = rng.randrange(len(others))
                row += others[begin : begin + rng.randrange(12)]
            elif not stretch:
                row.append(self.end)
        return row[:length]

    def _example(self, rng: random.Random, room: int) -> list[int]:
        shelf, document, at = self._place(rng)
        kind = rng.random()
        if room >= 128 and kind < self._kinds.fim:
            header = self._header(rng, document)
            return header + self._fim(rng, document, at, room - len(header))
        if room >= 256 and kind < self._kinds.fim + self._kinds.repository:
            header = self._header(rng, document, self._snippets(rng, shelf, document, room // 5))
            return header + self._fim(rng, document, at, room - len(header))
        start = document.text.rfind("\n", 0, at) + 1
        ids = self._encode(document.text[start : start + CHARACTERS * room])[:room]
        return [*ids, self.end]

    def _header(self, rng: random.Random, document: Document, snippets: Sequence[int] = ()) -> list[int]:
        """Mostly <|repo_name|>name\n snippets <|file_sep|>path\n, sometimes less, as a prompt may lack parts."""
        header: list[int] = []
        if rng.random() < 0.6:
            header += [self._repository, *self._encode(document.package.rpartition("/")[2] + "\n")]
        header += snippets
        if rng.random() < 0.8:
            header += [self._file, *self._encode(document.path + "\n")[-48:]]
        return header

    def _snippets(self, rng: random.Random, shelf: Shelf, document: Document, room: int) -> list[int]:
        """Parts of one or two other files of the package, each under its path."""
        ids: list[int] = []
        for other in rng.sample(shelf.documents, k=min(2, len(shelf.documents))):
            if other is not document:
                start = other.text.rfind("\n", 0, rng.randrange(len(other.text))) + 1
                snippet = self._encode(other.text[start : start + CHARACTERS * room])[:room]
                ids += [self._file, *self._encode(other.path + "\n")[-48:], *snippet]
        return ids

    def _fim(self, rng: random.Random, document: Document, at: int, room: int) -> list[int]:
        """PSM. The middle is what is typed since the anchor and what is still missing, in one."""
        text = document.text
        start, end = hole(rng, text, at)
        middle = self._encode(text[start:end])
        whole = len(middle) <= room // 3
        middle = [*middle, self.end] if whole else middle[: room // 3]
        first = text.find("\n", max(0, start - CHARACTERS * room)) + 1 if start > CHARACTERS * room else 0
        before = self._encode(text[min(first, start) : start])
        after = self._encode(text[end : end + CHARACTERS * room // 4])[: room // 4] if whole else []
        room -= len(middle) + len(after) + 3
        before = before[max(0, len(before) - room) :]
        return [self.prefix, *before, self._suffix, *after, self.middle, *middle]

    def _place(self, rng: random.Random) -> tuple[Shelf, Document, int]:
        (shelf,) = rng.choices(self._shelves, self._weights)
        return shelf, *shelf.place(rng)

    def _control(self, name: str) -> int:
        token: int | None = self._tokenizer.token_to_id(f"<|{name}|>")
        if token is None:
            raise ValueError(f"the tokenizer has no <|{name}|>")
        return token

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids


def hole(rng: random.Random, text: str, at: int) -> tuple[int, int]:
    """A middle text[start:end] near `at`: it starts as an anchor does, and ends as answers should end.

    Mostly it starts at the start of a line that is not blank, else anywhere; it ends at the end of a line or
    of a block, before a closer, or anywhere.
    """
    start = at
    if rng.random() < 0.85:
        start = text.rfind("\n", 0, at) + 1
        while start < len(text) and text[start] == "\n":
            start += 1
    line_ends = [len(text) if (e := text.find("\n", start)) < 0 else e]
    for _ in range(min(15, int(rng.expovariate(0.5)))):
        if (following := text.find("\n", line_ends[-1] + 1)) >= 0:
            line_ends.append(following)
    end, last_line = line_ends[-1], text.rfind("\n", 0, line_ends[-1]) + 1
    choice = rng.random()
    if choice < 0.2:
        return start, block_end(text, start)
    if choice < 0.35:
        closers = [i for i in range(max(start, last_line), end) if text[i] in ")]}>\"';,:"]
        return start, rng.choice(closers) if closers else end
    if choice < 0.45:
        return start, rng.randrange(max(start, last_line), end + 1)
    return start, end


def block_end(text: str, start: int) -> int:
    """The end of the last line that belongs to the block of the line at `start`: it is indented no less."""
    lines = text[start : start + 4000].split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    end = start + len(lines[0])
    position = end
    for line in lines[1:]:
        position += 1 + len(line)
        if line.strip():
            if len(line) - len(line.lstrip()) < indent or (indent == 0 and not line[0].isspace()):
                break
            end = position
    return end
