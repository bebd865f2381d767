"""One completion from document to edit."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from copilotd.backends.base import Backend
from copilotd.completion.anchor import Layout
from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.completion.detokenise import bytes_of, text_of
from copilotd.completion.explanation import Explanation, draft_of
from copilotd.completion.healing import Healing, TokenIndex
from copilotd.completion.places import Places
from copilotd.completion.postprocess import Context, Result, apply, enough
from copilotd.completion.prompt import PromptWriter
from copilotd.completion.session import Entry, Memory, Recalled, Spot
from copilotd.completion.stop import at_boundary, chosen_by_popup, context_of
from copilotd.completion.window import line_end
from copilotd.completion.writing import Writing
from copilotd.config import DaemonSettings
from copilotd.engine.generation import Cancelled, GenerationRequest, Sampling, Surroundings
from copilotd.wording import plural

DOCUMENTS = 16
"""remembered, the least recently asked out"""
ECHO_TOKENS = 64
ALTERNATIVES = 3
"""suggestions for somebody who asks by hand, the first among them"""
DRAWS = 5
"""so many are drawn at most, to find those that are different"""
ALTERNATIVE_TEMPERATURE = 1.0
"""of the draws where the first is the model's best: 1 is its law as it was trained"""


class Document(Struct):
    """What is kept of one client's document between two requests."""

    ask: Ask
    """the last one"""
    places: Places
    memory: Memory = field(default_factory=Memory)
    writing: Writing | None = None
    shown: tuple[Ask, Suggestion] | None = None
    """what was answered last, until the completion where its acceptance leads is known too"""
    drawn: Spot | None = None
    """where alternatives were drawn last: there are no others"""


class Completer:
    """Completions of all clients from one backend. Called on one thread, the engine's.

    Deadlines are readings of `time.monotonic()`. BackendError and what a device raises go to the caller.
    """

    def __init__(self, backend: Backend, settings: DaemonSettings | None = None) -> None:
        settings = settings or DaemonSettings()
        self._backend = backend
        self._vocabulary = backend.vocabulary
        self._prompts = PromptWriter(backend.vocabulary, backend.context_tokens)
        self._tokens = TokenIndex(backend.vocabulary)
        self._sampling = Sampling(
            temperature=settings.temperature, top_k=settings.top_k, top_p=settings.top_p, seed=settings.seed
        )
        self._speculation = settings.speculation
        self._prefetches = settings.prefetch == "on" or (
            settings.prefetch == "auto" and settings.backend == "local"
        )
        self._cold_tokens = settings.cold_tokens
        self._documents: OrderedDict[tuple[str, str], Document] = OrderedDict()

    # ---- what the daemon calls -----------------------------------------------------------------------------

    def complete(self, ask: Ask, cancelled: Cancelled, deadline: float | None) -> Completion:
        """What to show at the cursor: from memory, by going on with a generation that agrees, or afresh."""
        explanation = Explanation()
        chosen = chosen_by_popup(ask)
        if chosen is None:
            explanation.add("session", "the popup's entry replaces what was typed")
            return Completion([], "popup", explanation)
        context = context_of(ask, ask.cursor, chosen)
        if context.scope == "none":
            explanation.add("stop", "no completions in comments")
            return Completion([], "comments", explanation)
        document = self._open(ask)
        completion = self._first(document, ask, context, cancelled, deadline, explanation)
        if completion.suggestions and ask.trigger == "invoked":
            self._add_alternatives(document, ask, context, cancelled, deadline, completion)
        return completion

    def _first(
        self,
        document: Document,
        ask: Ask,
        context: Context,
        cancelled: Cancelled,
        deadline: float | None,
        explanation: Explanation,
    ) -> Completion:
        """The one that is shown unasked."""
        if recalled := document.memory.recall(ask):
            known = self._recalled(document, recalled, ask, context, explanation)
            if known is not None:
                return known
        if document.writing and (typed := _joins(document.writing, ask, context.selected)) is not None:
            explanation.add("session", f"goes on with a generation {plural(len(typed), 'character')} back")
            joined = self._write(document, document.writing, ask, cancelled, deadline, explanation)
            if joined is not None:
                joined.joined = True
                return joined
        document.writing = self._begin(document, ask, context, explanation)
        if document.writing is None:
            return Completion([], "nothing", explanation)
        answer = self._write(document, document.writing, ask, cancelled, deadline, explanation)
        return answer or Completion([], "nothing", explanation)

    def accepted(self, client: str, suggestion: Suggestion) -> None:
        """The person took a suggestion, or its beginning: where the cursor landed comes first in idle time."""
        for (owner, _), document in self._documents.items():
            if owner == client and suggestion.start == document.ask.offset:
                document.shown = (document.ask, suggestion)

    def idle(self, cancelled: Cancelled) -> bool:
        """One piece of work for the document last asked about; False when nothing is left."""
        if not self._documents:
            return False
        document = self._documents[next(reversed(self._documents))]
        pieces: tuple[Callable[[Document, Cancelled], bool], ...] = (
            self._finish,
            self._lengthen,
            self._surround,
            self._prefetch,
            self._warm,
            self._move_anchor,
        )
        return any(piece(document, cancelled) for piece in pieces)

    def close_document(self, client: str, uri: str) -> None:
        self._documents.pop((client, uri), None)
        self._backend.forget((client, uri))

    def close_client(self, client: str) -> None:
        self._prompts.encoder.forget()
        for _, uri in [key for key in self._documents if key[0] == client]:
            self.close_document(client, uri)

    def _open(self, ask: Ask) -> Document:
        key = (ask.client, ask.uri)
        document = self._documents.setdefault(key, Document(ask, Places(self._prompts, self._cold_tokens)))
        self._documents.move_to_end(key)
        if len(self._documents) > DOCUMENTS:
            self.close_document(*next(iter(self._documents)))
        document.ask = ask
        return document

    # ---- from memory ---------------------------------------------------------------------------------------

    def _recalled(
        self, document: Document, recalled: Recalled, ask: Ask, context: Context, explanation: Explanation
    ) -> Completion | None:
        """An answer from memory; None when it does not fit what stands after the cursor now."""
        if not recalled.text and not context.selected:
            explanation.add("session", "asked before, without an answer")
            return Completion([], recalled.entry.reason, explanation)
        result = _still_fits(recalled, context)
        if result is None:
            return None
        explanation.add("session", "typed as suggested")
        suggestion = _suggestion(ask, result)
        document.shown = (ask, suggestion)
        return Completion([suggestion], "", explanation, typed_through=True)

    # ---- asked by hand -------------------------------------------------------------------------------------

    def _add_alternatives(
        self,
        document: Document,
        ask: Ask,
        context: Context,
        cancelled: Cancelled,
        deadline: float | None,
        completion: Completion,
    ) -> None:
        """Up to ALTERNATIVES distinct ones: those known of this place, then what the model draws by its own law.

        What is cut short by a cancel or the clock is dropped. The first stays what is remembered first.
        """
        found, spot = completion.suggestions, Spot.of(ask)
        known = list(document.memory.recalls(ask))
        for recalled in reversed(known):
            if recalled.entry.drawn and (result := _still_fits(recalled, context)):
                _add_distinct(found, _suggestion(ask, result))
        if len(found) >= ALTERNATIVES or document.drawn == spot:
            del found[ALTERNATIVES:]
            return
        writing = self._begin(document, ask, context, Explanation())
        if writing is None:
            return

        def ended() -> bool:
            return cancelled() or (deadline is not None and time.monotonic() >= deadline)

        draws = 0
        while len(found) < ALTERNATIVES and draws < DRAWS and not ended():
            draws += 1
            drawn = writing.drawn(self._drawing(draws))
            explanation = Explanation()
            complete = self._generate(document, drawn, ended, explanation)
            completion.explanation.counters.add(explanation.counters)
            result = self._result(drawn, ask, explanation) if complete else None
            if result and result.text and _add_distinct(found, _suggestion(ask, result)):
                document.memory.add(replace(_entry(drawn, ask, result), drawn=True))
        if not ended():
            document.drawn = spot
        completion.explanation.add("alternatives", f"{draws} drawn, {plural(len(found) - 1, 'other')} found")
        if known:
            document.memory.add(known[0].entry)

    def _drawing(self, number: int) -> Sampling:
        """The target's own law, or the warmer or colder one that is set."""
        temperature = self._sampling.temperature if not self._sampling.greedy else ALTERNATIVE_TEMPERATURE
        return replace(self._sampling, temperature=temperature, seed=self._sampling.seed + number)

    # ---- writing -------------------------------------------------------------------------------------------

    def _begin(
        self, document: Document, ask: Ask, context: Context, explanation: Explanation
    ) -> Writing | None:
        """Lay the prompt, or keep the one that is laid; None when there is nothing to go on from."""
        started = time.perf_counter()
        layout = document.places.at(ask, self._backend.prefill_tokens_per_s, explanation)
        filled = self._prompts.fill(layout, ask)
        prompt, healed = filled.prompt, filled.ids[filled.kept :]
        if not prompt:
            explanation.add("prompt", "an empty document, and a model that needs a beginning")
            return None
        dropped = bytes_of(self._vocabulary, healed)
        needed = dropped + context.selected.encode()
        rest = context.selected or document.memory.rest(ask)
        echo = self._prompts.encoder.encode(text_of(dropped)[0] + rest)[:ECHO_TOKENS] if rest else []
        explanation.parts = self._prompts.parts(ask, filled)
        explanation.add("healing", f"writes {plural(len(healed), 'token')} of what was typed again")
        explanation.add("prompt", plural(len(prompt), "token"), (time.perf_counter() - started) * 1e3)
        again = len(healed) + len(self._prompts.encoder.encode(context.selected))
        return Writing(
            spot=Spot.of(ask),
            context=context,
            prompt=prompt,
            draft_prompt=filled.draft_prompt,
            slot=((ask.client, ask.uri), layout.slot),
            before=[*layout.above, *layout.prefix_ids, *filled.ids[: filled.kept]],
            after=[*layout.suffix_ids, *layout.below],
            library=ask.library,
            echo=echo,
            needed=needed,
            dropped=len(dropped),
            most=min(self._prompts.budget(ask).answer + again, self._prompts.context - len(prompt)),
            sampling=self._sampling,
            cautious=ask.settings.multiline == "auto",
        )

    def _request(self, writing: Writing) -> GenerationRequest:
        done = writing.ids
        missing = writing.needed[len(writing.data) :]
        echo = writing.echo[len(done) :] if list(writing.echo[: len(done)]) == done else ()
        return GenerationRequest(
            prompt=[*writing.prompt, *done],
            draft_prompt=[*writing.draft_prompt, *done] if writing.draft_prompt else (),
            surroundings=Surroundings(before=[*writing.before, *done], after=writing.after),
            library=writing.library,
            echo=echo,
            slot=writing.slot,
            max_new_tokens=writing.most - len(done),
            stop_ids=self._vocabulary.control,
            draft_until=self._tokens.with_newline if writing.context.scope == "line" else frozenset(),
            sampling=writing.sampling,
            constraint=Healing(self._tokens, self._vocabulary, missing) if missing else None,
            speculation=self._speculation,
        )

    def _generate(
        self, document: Document, writing: Writing, ended: Cancelled, explanation: Explanation
    ) -> bool:
        """Go on with a writing until it is finished or ended; whether it is finished."""

        def emit(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
            writing.add(self._vocabulary, ids, logprobs)
            writing.finished = not writing.sound or enough(writing.judged, writing.text)
            return writing.finished

        started = time.perf_counter()
        document.places.sent(writing.slot[1], writing.prompt)
        generation = self._backend.generate(self._request(writing), ended, emit)
        if writing.finished:
            explanation.add("stop", "what would follow is not wanted here")
        writing.finished = writing.finished or generation.finish in ("stop", "length")
        explanation.counters = generation.counters
        explanation.drafts += [draft_of(self._vocabulary, proposed) for proposed in generation.proposed]
        spent = (time.perf_counter() - started) * 1e3
        explanation.add(
            "generate", f"{plural(len(generation.ids), 'token')}, then {generation.finish}", spent
        )
        return writing.finished

    def _write(
        self,
        document: Document,
        writing: Writing,
        ask: Ask,
        cancelled: Cancelled,
        deadline: float | None,
        explanation: Explanation,
    ) -> Completion | None:
        """Generate and answer; None when everything that was written has been typed by now."""

        def ended() -> bool:
            return cancelled() or (deadline is not None and time.monotonic() >= deadline)

        if not self._generate(document, writing, ended, explanation):
            if cancelled():
                return Completion([], "cancelled", explanation)
            writing.in_background = True
            explanation.add("stop", "the time is up")
        return self._answer(document, writing, ask, explanation)

    def _answer(
        self, document: Document, writing: Writing, ask: Ask, explanation: Explanation
    ) -> Completion | None:
        result = self._result(writing, ask, explanation)
        if result is None:
            return None
        if result.text:
            document.memory.add(_entry(writing, ask, result))
            suggestion = _suggestion(ask, result)
            document.shown = (ask, suggestion)
            return Completion([suggestion], "", explanation)
        if not writing.finished:
            return Completion([], "late", explanation)
        reason = result.applied[-1].rule if result.applied else "nothing"
        if not writing.context.selected or _typed(writing, ask):
            document.memory.add(Entry(Spot.of(ask), "", reason=reason))
        return Completion([], reason, explanation)

    def _result(self, writing: Writing, ask: Ask, explanation: Explanation) -> Result | None:
        """What fits of a text, after what was typed since it was begun; None when all of it has been typed."""
        text = writing.text if writing.finished else at_boundary(writing.text)
        typed, sure = _typed(writing, ask), writing.judged.sure
        if typed and not (text.startswith(typed) and len(text) > len(typed)):
            return None
        if sure is not None:
            sure -= len(typed)
            if sure <= 0:
                return None
        context = context_of(ask, ask.cursor, writing.context.selected if not typed else "")
        context = replace(context, scope=writing.context.scope, sure=sure)
        result = apply(context, text[len(typed) :])
        for applied in result.applied:
            explanation.add(f"postprocess.{applied.rule}", applied.reason)
        return result

    # ---- idle work -----------------------------------------------------------------------------------------

    def _finish(self, document: Document, cancelled: Cancelled) -> bool:
        """Go on with what the clock ended, for the next keystroke."""
        writing = document.writing
        if writing is None or writing.finished or not writing.in_background:
            return False
        if _joins(writing, document.ask, "") is None:
            document.writing = None
            return True
        explanation = Explanation()
        if self._generate(document, writing, cancelled, explanation):
            self._answer(document, writing, document.ask, explanation)
        return True

    def _lengthen(self, document: Document, cancelled: Cancelled) -> bool:
        return self._move(document, document.places.longer(document.ask), cancelled)

    def _move_anchor(self, document: Document, cancelled: Cancelled) -> bool:
        return self._move(document, document.places.nearer(document.ask), cancelled)

    def _move(self, document: Document, layout: Layout | None, cancelled: Cancelled) -> bool:
        """Prefill a better layout in the other slot and swap. False when there is none."""
        if layout is None:
            return False
        if self._prefill(document, layout, cancelled):
            document.places.adopt(layout)
            document.memory.forget_empty()
        return True

    def _surround(self, document: Document, cancelled: Cancelled) -> bool:
        """What stands beyond the windows, for lookup."""
        layout = document.places.current
        if layout is None or layout.surrounded:
            return False
        self._prompts.surround(layout, document.ask)
        return True

    def _warm(self, document: Document, cancelled: Cancelled) -> bool:
        """The draft model's prompt, after the target's first answer."""
        layout = document.places.current
        if layout is None or layout.warm:
            return False
        self._prefill(document, layout, cancelled)
        return True

    def _prefill(self, document: Document, layout: Layout, cancelled: Cancelled) -> bool:
        """False when cancelled. A backend that could not do all of it is not asked again."""
        ask, filled = document.ask, self._prompts.fill(layout, document.ask)
        document.places.sent(layout.slot, filled.prompt)
        request = GenerationRequest(
            prompt=filled.prompt,
            draft_prompt=filled.draft_prompt,
            slot=((ask.client, ask.uri), layout.slot),
            max_new_tokens=1,
        )
        layout.warm = self._backend.warm(request, cancelled) or not cancelled()
        return layout.warm

    def _prefetch(self, document: Document, cancelled: Cancelled) -> bool:
        """The completion where the cursor lands if what was shown is accepted."""
        shown, document.shown = document.shown, None
        if shown is None or not self._prefetches:
            return False
        ask = _landed(*shown)
        if document.memory.recall(ask) is not None:
            return False
        explanation = Explanation()
        writing = document.writing
        if writing is None or _joins(writing, ask, "") is None:
            context = context_of(ask, ask.cursor, "")
            writing = None if context.scope == "none" else self._begin(document, ask, context, explanation)
        if writing is None:
            return False
        document.writing = writing
        if self._generate(document, writing, cancelled, explanation):
            self._answer(document, writing, ask, explanation)
            document.shown = None
        return True


def _typed(writing: Writing, ask: Ask) -> str:
    """What was typed since a writing began."""
    since = writing.spot.typed_since(ask)
    return since[0] if since else ""


def _entry(writing: Writing, ask: Ask, result: Result) -> Entry:
    return Entry(writing.spot, _typed(writing, ask) + result.text, result.covers, writing.context.scope)


def _suggestion(ask: Ask, result: Result) -> Suggestion:
    return Suggestion(ask.offset, ask.offset + result.covers, result.text)


def _still_fits(recalled: Recalled, context: Context) -> Result | None:
    """What is remembered, against what stands after the cursor now."""
    if recalled.closers_came:
        result = apply(replace(context, scope=recalled.entry.scope), recalled.text)
    else:
        result = Result(recalled.text, recalled.covers)
    return result if result.text and _extends(result.text, context.selected) else None


def _add_distinct(found: list[Suggestion], suggestion: Suggestion) -> bool:
    """Whether it was none of those yet, nor the beginning of one."""
    if any(other.text.startswith(suggestion.text) for other in found):
        return False
    found.append(suggestion)
    return True


def _extends(text: str, chosen: str) -> bool:
    return not chosen or (text.startswith(chosen) and len(text) > len(chosen))


def _landed(ask: Ask, suggestion: Suggestion) -> Ask:
    """The document with the suggestion accepted."""
    inserted = suggestion.text.replace("\n", line_end(ask.text, ask.offset))
    text = ask.text[: suggestion.start] + inserted + ask.text[suggestion.end :]
    return replace(ask, text=text, offset=suggestion.start + len(inserted), selected=None)


def _joins(writing: Writing, ask: Ask, chosen: str) -> str | None:
    """What was typed since an unfinished writing began, if the writing says so too."""
    if writing.finished or chosen != writing.context.selected:
        return None
    since = writing.spot.typed_since(ask)
    return since[0] if since and writing.text.startswith(since[0]) else None
