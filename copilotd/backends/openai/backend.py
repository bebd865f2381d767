"""A team's server as a `Backend`: copilotd lays the prompts and judges the text, the server decodes."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator
from contextlib import closing, suppress

from copilotd.backends.base import BackendError, Begins, Description, Progress
from copilotd.backends.openai.answer import Answer, IdReader, Piece
from copilotd.backends.openai.bodies import Form, Markers, ids_body, text_body
from copilotd.backends.openai.endpoint import home_path, read_endpoint
from copilotd.backends.openai.failure import Failure
from copilotd.backends.openai.outage import Outage
from copilotd.backends.openai.server import Server
from copilotd.config import DaemonSettings, Settings
from copilotd.engine.generation import (
    Cancelled,
    Counters,
    Emit,
    Finish,
    Generation,
    GenerationRequest,
)
from copilotd.engine.prefix import common_prefix
from copilotd.models.catalogue import embedded_folder
from copilotd.models.errors import ModelError
from copilotd.models.tokenizer import TokenizerVocabulary
from copilotd.models.vocabulary import Vocabulary

LEARN_S = 3.0
"""how long a load waits for what the server says of itself"""
HURRY_S = 1.0
"""and how long somebody who waits for an answer does"""
PREFILL_TOKENS_PER_S = 5000.0
"""until it has been seen"""
TIMED_PREFILL = 256
"""Prompts with fewer new tokens than this say little about the prefill speed."""
WORTH_WARMING = 64
"""So many tokens cost a waiting person nothing that is noticed."""
SAMPLE = "def f(x):\n    return {'naïve': x[0] != 12345}  # 漢字\n\n\tfoo->bar();\n"


class OpenAIBackend:
    """Implements `Backend`. Everything but `describe` runs on one thread."""

    def __init__(self, settings: DaemonSettings) -> None:
        """Asks the server what it is; one that does not answer now may do so later. Raises BackendError."""
        endpoint = read_endpoint(settings)
        self._tokenizer = _vocabulary(settings.endpoint_tokenizer)
        self.vocabulary: Vocabulary = self._tokenizer
        self._server_name = endpoint.server
        self._markers = Markers(self._tokenizer)
        self._outage = Outage(endpoint.server)
        try:
            self._server = Server(endpoint)
        except ValueError:
            raise BackendError(
                "the environment names a proxy that is no address (HTTPS_PROXY, ALL_PROXY): mend it, "
                "then run `copilotd reload`"
            ) from None
        self._model = settings.endpoint_model
        self.name = f"{self._model or 'the model'} at {endpoint.server}"
        self._form = Form.MASKED_IDS if settings.endpoint_tokenizer else Form.TEXT
        self.context_tokens = settings.context_tokens
        self.prefill_tokens_per_s = PREFILL_TOKENS_PER_S
        self._sent: dict[Hashable, list[int]] = {}
        self._strayed: tuple[list[int], bytes, bool] = ([], b"", False)
        """the last prompt whose answer did not begin as it had to, how it began, and whether it ended there"""
        self._remarks: tuple[str, ...] = ()
        self._met = False
        """it has said what it is, or has written all the same"""
        with suppress(Failure):
            self._meet(LEARN_S)

    @classmethod
    def load(cls, settings: Settings, progress: Progress) -> OpenAIBackend:
        """Raises BackendError. Nothing is loaded but a tokenizer."""
        return cls(settings.daemon)

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        output = _Output(emit, request.max_new_tokens)
        if output.full:
            return Generation([], [], "length", Counters())
        reused = common_prefix(self._sent.get(request.slot, []), list(request.prompt))
        counters = Counters(reused_tokens=reused, prefill_tokens=len(request.prompt) - reused)
        self._outage.check()
        try:
            if not self._met:  # it was away when it was to be asked
                self._meet_in_a_hurry()
            finish = self._in_a_form_it_takes(request, cancelled, output, counters)
        except Failure as failure:
            raise self._outage.failed(failure) from None
        if counters.target_steps or finish != "cancelled":
            self._outage.over()
            self._met = True
        counters.generated_tokens = len(output.ids)
        finish = "halted" if output.halted else "length" if output.full else finish
        return Generation(output.ids, output.logprobs, finish, counters)

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        """Have the server's prefix cache hold a prompt, unless it does for all that is known."""
        prompt = list(request.prompt)
        lacking = len(prompt) - common_prefix(self._sent.get(request.slot, []), prompt)
        if lacking < WORTH_WARMING or not self._model or self._outage.going_on:
            return True
        answer = self._ask(request, prompt, 1, cancelled)
        try:
            for _ in answer:
                pass
        except Failure as failure:
            self._outage.failed(failure)
            return True
        if answer.finish == "cancelled":
            return False
        self._sent[request.slot] = prompt
        return True

    def forget(self, document: Hashable) -> None:
        for slot in [slot for slot in self._sent if isinstance(slot, tuple) and slot[0] == document]:
            del self._sent[slot]

    def describe(self) -> Description:
        return Description(target=self._model, device=self._server_name, snippets=True, remarks=self._remarks)

    def shrink(self) -> bool:
        return False

    def close(self) -> None:
        self._server.close()

    # ---- one request ---------------------------------------------------------------------------------------

    def _in_a_form_it_takes(
        self, request: GenerationRequest, cancelled: Cancelled, output: _Output, counters: Counters
    ) -> Finish:
        """A server that refuses the form gets a plainer one, from then on."""
        first = self._form
        for form in Form:
            if form < first or (form is Form.MASKED_IDS and not _needed(request)):
                continue
            self._form = form
            try:
                return self._write(request, cancelled, output, counters)
            except Failure as failure:
                if failure.refused and not output.ids and form is not Form.TEXT:
                    continue
                if failure.refused:  # it was not the form that was at fault
                    self._form = first
                raise
        raise AssertionError("the plainest form is always tried")

    def _write(
        self, request: GenerationRequest, cancelled: Cancelled, output: _Output, counters: Counters
    ) -> Finish:
        """What has to be written again goes best in the model's own tokens. Where the server masks no others,
        the model is left to itself first, and put on the way by force if it goes another."""
        prompt, most, needed = list(request.prompt), request.max_new_tokens, _needed(request)
        mask = needed if self._form is Form.MASKED_IDS else ""
        wanted = needed.encode()
        if mask or not self._strays(request, prompt, wanted):
            answer = self._ask(request, prompt, most, cancelled, mask)
            with closing(self._pieces(answer, request, counters)) as pieces:
                held, data = Piece([], []), b""
                for piece in pieces:
                    for token, logprob in zip(piece.ids, piece.logprobs, strict=True):
                        held.ids.append(token)
                        held.logprobs.append(logprob if len(data) >= len(wanted) else 0.0)  # it had no choice
                        data += self.vocabulary.token_bytes(token)
                    if len(data) >= len(wanted) or not wanted.startswith(data):
                        break
                if data.startswith(wanted):
                    return answer.finish if output.give(held) else self._pass_on(pieces, answer, output)
            if answer.finish == "cancelled" and wanted.startswith(data):
                return "cancelled"
            if not mask:
                self._strayed = (prompt, data, answer.finish != "cancelled")
            elif not wanted.startswith(data):
                self._form = Form.IDS  # it does not know what it was asked for
        forced = self.vocabulary.encode(needed)
        if output.give(Piece(forced, [0.0] * len(forced))):
            return "length"
        answer = self._ask(request, prompt + forced, most - len(forced), cancelled)
        with closing(self._pieces(answer, request, counters)) as pieces:
            return self._pass_on(pieces, answer, output)

    def _pass_on(self, pieces: Iterator[Piece], answer: Answer, output: _Output) -> Finish:
        any(output.give(piece) for piece in pieces)
        return answer.finish

    def _strays(self, request: GenerationRequest, prompt: list[int], needed: bytes) -> bool:
        """Whether this very prompt was asked last and its answer, which is always the same, does not fit."""
        asked, data, ended = self._strayed
        if not needed or not request.sampling.greedy or asked != prompt:
            return False
        fits = needed.startswith(data) and not ended
        return not (fits or data.startswith(needed))

    def _ask(
        self, request: GenerationRequest, prompt: list[int], most: int, cancelled: Cancelled, mask: str = ""
    ) -> Answer:
        ids = self._form is not Form.TEXT
        body = (
            ids_body(self._model, prompt, request, most, mask)
            if ids
            else text_body(self._model, prompt, request, most, self._tokenizer)
        )
        reader = IdReader(self._tokenizer, self._markers, request.stop_ids)
        return Answer(self._server.complete(body), reader, cancelled, ids=ids)

    def _pieces(
        self, answer: Answer, request: GenerationRequest, counters: Counters
    ) -> Generator[Piece, None, None]:
        """The answer's ids; what is learned on the way is kept."""
        new = 0 if counters.prefill_ms else counters.prefill_tokens
        try:
            for piece in answer:
                counters.target_steps += 1
                self._sent[request.slot] = list(request.prompt)
                yield piece
        finally:
            if answer.first_s is not None:
                counters.prefill_ms += answer.first_s * 1e3
                if new >= TIMED_PREFILL:
                    self.prefill_tokens_per_s += (new / answer.first_s - self.prefill_tokens_per_s) / 4

    # ---- what the server is --------------------------------------------------------------------------------

    def _meet(self, timeout_s: float) -> None:
        """Raises Failure where it does not say all of it."""
        self._learn(timeout_s)
        self._compare_tokenizers(timeout_s)
        self._met = True

    def _meet_in_a_hurry(self) -> None:
        """While somebody waits. Raises Failure where nothing can be asked for without."""
        try:
            self._meet(HURRY_S)
        except Failure:
            if not self._model:
                raise

    def _learn(self, timeout_s: float) -> None:
        """Which models it has, and how long a prompt may be. Raises Failure."""
        models = self._server.models(timeout_s).data
        chosen = next((one for one in models if self._model in ("", one.id)), None)
        if chosen is None:
            if not self._model:
                raise Failure("names no model: set endpoint_model, then run `copilotd reload`", lasting=True)
            names = ", ".join(one.id for one in models[:5])
            self._remark(f"has no model {self._model!r} but {names}: check endpoint_model")
            return
        self._model = chosen.id
        self.name = f"{chosen.id} at {self._server_name}"
        if chosen.max_model_len is not None:
            self.context_tokens = max(64, min(self.context_tokens, chosen.max_model_len))

    def _compare_tokenizers(self, timeout_s: float) -> None:
        """Ids of another tokenizer would be nonsense without any error. Raises Failure where it cannot say."""
        if self._form is Form.TEXT:
            return
        if self._server.tokens(self._model, SAMPLE, timeout_s) != self.vocabulary.encode(SAMPLE):
            self._form = Form.TEXT
            self._remark(
                f"splits text otherwise than endpoint_tokenizer does, so prompts go as text: "
                f"put the tokenizer.json of {self._model} there, then run `copilotd reload`"
            )

    def _remark(self, words: str) -> None:
        self._remarks = (*self._remarks, f"copilotd's server {self._server_name} {words}.")


def _needed(request: GenerationRequest) -> str:
    """What the answer must begin with."""
    constraint = request.constraint
    return constraint.needed.decode(errors="ignore") if isinstance(constraint, Begins) else ""


class _Output:
    """What has been given on, within a budget."""

    def __init__(self, emit: Emit, most: int) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.halted = False
        self._emit, self._most = emit, most

    @property
    def full(self) -> bool:
        return len(self.ids) >= self._most

    def give(self, piece: Piece) -> bool:
        """True: no more is wanted."""
        room = self._most - len(self.ids)
        ids, logprobs = piece.ids[:room], piece.logprobs[:room]
        if ids:
            self.ids += ids
            self.logprobs += logprobs
            self.halted = self._emit(ids, logprobs)
        return self.halted or self.full


def _vocabulary(folder: str) -> TokenizerVocabulary:
    """The server's, where its tokenizer is at hand; else one that counts and cuts well enough."""
    place = home_path(folder) if folder else embedded_folder("target")
    try:
        return TokenizerVocabulary.from_folder(place)
    except ModelError as error:
        raise BackendError(f"endpoint_tokenizer: {error}; then run `copilotd reload`") from None
