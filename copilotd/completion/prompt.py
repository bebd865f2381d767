"""The prompt's template: Qwen's PSM order with an anchor, or a bare prefix for models that cannot infill.

    [<|repo_name|>name <|file_sep|>path]  <|fim_prefix|> up to the anchor  <|fim_suffix|> after the cursor
    <|fim_middle|> from the anchor to the cursor

Control ids come from here alone; `Vocabulary.encode` splits what looks like one in user text. Budgets are
kept part by part before the template is filled, so nothing is ever cut out of its middle.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from copilotd.completion.anchor import PINNED, Budget, Layout, budget_for, place, shortened
from copilotd.completion.ask import Ask, Snippet
from copilotd.completion.explanation import Part
from copilotd.completion.healing import stable_length
from copilotd.completion.pieces import PieceEncoder
from copilotd.completion.window import (
    CHARACTERS_PER_TOKEN,
    fitting_end,
    fitting_start,
    lines_above,
    lines_below,
    unix,
)
from copilotd.models.vocabulary import Vocabulary

NAME_TOKENS = 32
PATH_TOKENS = 64
NAME_SHARE = 16
"""neither name nor path takes more than this part of the context"""
SNIPPET_TOKENS = 512
SNIPPET_SHARE = 4
"""pieces of other files take no more than this part of the context"""
DRAFT_TOKENS = 640
"""windows of the draft model's prompt"""
LOOKUP_CHARACTERS = 24_576
"""beyond the windows, on each side, what lookup may copy from"""


class Filled(Struct, frozen=True):
    """A layout with the text typed since it was laid."""

    layout: Layout
    typed: str
    ids: list[int]
    """of the typed text"""
    kept: int
    """of which so many go into the prompt; healing drops the others"""

    @property
    def prompt(self) -> list[int]:
        return [*self.layout.head, *self.ids[: self.kept]]

    @property
    def draft_prompt(self) -> list[int]:
        return [*self.layout.draft_head, *self.ids[: self.kept]] if self.layout.draft_head else []


class PromptWriter:
    """Lays prompts of one model."""

    def __init__(self, vocabulary: Vocabulary, context_tokens: int) -> None:
        self.encoder = PieceEncoder(vocabulary)
        self._vocabulary = vocabulary
        self.context = context_tokens
        self.fills_in = vocabulary.fim is not None

    def budget(self, ask: Ask, snippets: tuple[Snippet, ...] = ()) -> Budget:
        template = len(self.header(ask, snippets)) + (3 if self._vocabulary.fim else 0)
        return budget_for(
            self.context, template, ask.settings.max_new_tokens, self._vocabulary.fim is not None
        )

    def fitting(self, snippets: tuple[Snippet, ...]) -> tuple[Snippet, ...]:
        """As many, from the first, as the budget for them takes; none where the model knows no other files."""
        if self._vocabulary.fim is None or self._vocabulary.fim.file is None:
            return ()
        room = min(SNIPPET_TOKENS, self.context // SNIPPET_SHARE)
        kept = 0
        for snippet in snippets:
            room -= len(self._snippet(snippet))
            if room < 0:
                break
            kept += 1
        return snippets[:kept]

    def _snippet(self, snippet: Snippet) -> list[int]:
        fim, encode = self._vocabulary.fim, self.encoder.encode
        assert fim is not None
        assert fim.file is not None
        return [fim.file, *encode(snippet.path)[-PATH_TOKENS:], *encode("\n"), *encode(snippet.text + "\n")]

    def header(self, ask: Ask, snippets: tuple[Snippet, ...] = ()) -> list[int]:
        """What comes before everything else and changes seldom."""
        ids = [] if self._vocabulary.begin is None else [self._vocabulary.begin]
        fim = self._vocabulary.fim
        if fim is None:
            return ids
        name, path = (min(most, self.context // NAME_SHARE) for most in (NAME_TOKENS, PATH_TOKENS))
        if fim.repository is not None and ask.repository:
            ids += [fim.repository, *self.encoder.encode(ask.repository)[:name]]
            ids += self.encoder.encode("\n")
        for snippet in snippets:
            ids += self._snippet(snippet)
        if fim.file is not None and ask.path:
            ids += [fim.file, *self.encoder.encode(ask.path)[-path:], *self.encoder.encode("\n")]
        return ids

    def lay(
        self,
        ask: Ask,
        budget: Budget,
        slot: int,
        previous: Layout | None,
        snippets: tuple[Snippet, ...] = (),
    ) -> Layout:
        """A frame for the text around the cursor. The draft model's is without the snippets."""
        text, cursor, count = ask.text, ask.cursor, self.encoder.count
        window = place(text, cursor, budget, count, previous)
        header = self.header(ask, snippets)
        if self._vocabulary.fim is None:
            return Layout(
                start=window.start,
                anchor=window.anchor,
                known=text[window.start : min(window.start + PINNED, cursor)],
                suffix="",
                to_the_end=False,
                prefix_ids=(),
                suffix_ids=(),
                head=header,
                draft_head=[],
                slot=slot,
            )
        prefix = text[window.start : window.anchor]
        suffix = text[cursor : window.end]
        prefix_ids = self.encoder.encode(unix(prefix))
        suffix_ids = self.encoder.encode(unix(suffix))
        return Layout(
            start=window.start,
            anchor=window.anchor,
            known=prefix,
            suffix=suffix,
            to_the_end=window.end == len(text),
            prefix_ids=prefix_ids,
            suffix_ids=suffix_ids,
            head=self._frame(header, prefix_ids, suffix_ids),
            draft_head=self._draft_head(self.header(ask), prefix, suffix, budget, bool(snippets)),
            slot=slot,
            snippets=snippets,
        )

    def fill(self, layout: Layout, ask: Ask) -> Filled:
        """The frame with what stands between its anchor and the cursor."""
        typed = layout.typed(ask.text, ask.cursor)
        ids = self.encoder.encode(typed)
        least = 0 if layout.head else 1
        kept = stable_length(ids, self._vocabulary, self.encoder.line_starts_stable, least)
        return Filled(layout, typed, ids, kept)

    def parts(self, ask: Ask, filled: Filled) -> list[Part]:
        """The prompt in words, for a person who asked why."""
        layout, typed = filled.layout, Part("typed", len(filled.ids), filled.typed)
        if self._vocabulary.fim is None:
            return [typed]
        header = self.header(ask)
        others = [Part(f"snippet {one.path}", len(self._snippet(one)), one.text) for one in layout.snippets]
        return [
            *others,
            Part("header", len(header), self._vocabulary.decode(header)),
            Part("prefix", len(layout.prefix_ids), unix(layout.known)),
            Part("suffix", len(layout.suffix_ids), unix(layout.suffix)),
            typed,
        ]

    def surround(self, layout: Layout, ask: Ask) -> None:
        """Encode what stands beyond the windows, for lookup."""
        text = ask.text
        after = min(len(text), ask.cursor + len(layout.suffix))
        above = lines_above(text, layout.start, LOOKUP_CHARACTERS)
        below = lines_below(text, after, LOOKUP_CHARACTERS)
        encode = self.encoder.encode
        layout.above = encode(unix(text[above[0][0] : layout.start])) if above else []
        layout.below = encode(unix(text[after : below[-1][1]])) if below else []
        layout.surrounded = True

    def _frame(self, header: Sequence[int], prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        fim = self._vocabulary.fim
        assert fim is not None
        return [*header, fim.prefix, *prefix, fim.suffix, *suffix, fim.middle]

    def _draft_head(
        self, header: Sequence[int], prefix: str, suffix: str, budget: Budget, apart: bool
    ) -> list[int]:
        """The frame with the nearest lines only; empty where that is the whole frame, unless it is `apart`."""
        short = shortened(budget, DRAFT_TOKENS)
        if short is budget and not apart:
            return []
        count, encode = self.encoder.count, self.encoder.encode
        above = lines_above(prefix, len(prefix), short.prefix * CHARACTERS_PER_TOKEN)
        below = lines_below(suffix, 0, short.suffix * CHARACTERS_PER_TOKEN)
        near_prefix = prefix[fitting_start(prefix, above, short.prefix, count) :]
        near_suffix = suffix[: fitting_end(suffix, below, short.suffix, count)]
        return self._frame(header, encode(unix(near_prefix)), encode(unix(near_suffix)))
