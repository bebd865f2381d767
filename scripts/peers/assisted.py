"""transformers: plain decoding and assisted generation, and places filled in one after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, StoppingCriteria, StoppingCriteriaList
from transformers.utils import logging

from copilotd.engine.prefix import common_prefix
from copilotd.models.tokenizer import TokenizerVocabulary
from copilotd.models.vocabulary import Vocabulary
from peers.llama import Completion, has_line
from peers.prompts import filled_in, window
from peers.worker import Asked, Infill, Job, Run


class Rounds(StoppingCriteria):
    """When each round of a generation ended, and how many ids there were then."""

    def __init__(self) -> None:
        self.ended: list[tuple[float, int]] = []

    def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
        self.ended.append((time.perf_counter(), input_ids.shape[1]))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    @property
    def first(self) -> float:
        return self.ended[0][0]

    @property
    def last(self) -> float:
        return self.ended[-1][0]


class Lines(Rounds):
    """Reads along, and ends a generation as /infill does: at a line's end past the time limit."""

    def __init__(self, vocabulary: Vocabulary, start: int, limit_ms: float) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._start = start
        self._limit_ms = limit_ms
        self.text = ""
        self._line: float | None = None

    def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
        go_on = super().__call__(input_ids, scores, **more)
        known = len(self.text)
        self.text = self._vocabulary.decode(input_ids[0, self._start :].tolist())
        if self._line is None and has_line(self.text):
            self._line = self.last
        late = (self.last - self.first) * 1e3 > self._limit_ms
        return ~go_on if late and "\n" in self.text[known:] else go_on

    @property
    def line(self) -> float | None:
        """When the first line was complete; None: nothing was written."""
        return self._line or (self.last if self.text.strip() else None)


class Kept:
    """The target's KV cache, which goes from one prompt to the next: the draft's is made anew by transformers."""

    def __init__(self) -> None:
        self.cache = DynamicCache()
        self._ids: list[int] = []

    def begin(self, prompt: list[int]) -> int:
        """Keeps what is of this prompt too; so many ids. The last is run again, for what comes after it."""
        common = common_prefix(self._ids, prompt[:-1])
        self.cache.crop(common - len(self._ids))
        return common

    def end(self, ids: list[int]) -> None:
        self._ids = ids[: self.cache.get_seq_length()]


def continuing(model: Any) -> Any:
    """Assisted generation runs a prompt whole, the part in a cache given to it too: now only the rest."""
    prepare = model.prepare_inputs_for_generation

    @wraps(prepare)
    def prepared(ids: Any, next_sequence_length: int | None = None, cache: Any = None, **more: Any) -> Any:
        if next_sequence_length is None and cache is not None:
            next_sequence_length = ids.shape[1] - cache.get_seq_length()
        return prepare(ids, next_sequence_length=next_sequence_length, cache=cache, **more)

    model.prepare_inputs_for_generation = prepared
    return model


class Transformers:
    def __init__(self, job: Job) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(job.threads)
        dtype = torch.float32 if job.quantisation == "fp32" else torch.bfloat16
        self._target = continuing(AutoModelForCausalLM.from_pretrained(job.target, dtype=dtype).eval())
        self._draft = (
            AutoModelForCausalLM.from_pretrained(job.draft, dtype=dtype).eval() if job.draft else None
        )
        for model in (self._target, self._draft):
            if model is not None:
                model.generation_config.eos_token_id = model.config.eos_token_id
                model.generation_config.pad_token_id = model.config.eos_token_id
        self._vocabulary = TokenizerVocabulary.from_folder(Path(job.target))
        self._context = job.context
        self._kept: defaultdict[str, Kept] = defaultdict(Kept)
        self.name = f"transformers {job.quantisation}"

    def about(self) -> dict[str, Any]:
        return {"name": self.name}

    def run(self, asked: Asked) -> Run:
        rounds, prompt = Rounds(), asked.prompt.ids
        started = time.perf_counter()
        ids = self._generate(prompt, asked.tokens, asked.mode, rounds)
        return Run(
            ids=ids[len(prompt) :],
            timed=rounds.ended[-1][1] - rounds.ended[0][1],
            decode_ms=(rounds.last - rounds.first) * 1e3,
            prompt_tokens=len(prompt),
            prompt_ms=(rounds.first - started) * 1e3,
            steps=len(rounds.ended),
        )

    def infill(self, asked: Infill) -> Completion:
        started = time.perf_counter()
        size = window(self._context, asked.tokens)
        prompt = filled_in(self._vocabulary, asked.prefix, asked.suffix, asked.middle, size)
        kept = self._kept[asked.mode]
        known = kept.begin(prompt)
        lines = Lines(self._vocabulary, len(prompt), asked.limit_ms)
        ids = self._generate(
            prompt, asked.tokens, asked.mode, lines,
            cache=kept.cache, eos_token_id=sorted(self._vocabulary.control),
        )  # fmt: skip
        kept.end(ids)
        return Completion(
            text=lines.text,
            ids=ids[len(prompt) :],
            prompt_tokens=len(prompt) - known,
            prompt_ms=(lines.first - started) * 1e3,
            tokens=len(ids) - len(prompt),
            decode_ms=(lines.last - lines.first) * 1e3,
            line_ms=None if lines.line is None else (lines.line - started) * 1e3,
        )

    def _generate(self, prompt: list[int], tokens: int, mode: str, rounds: Rounds, **more: Any) -> list[int]:
        """The prompt and what was written after it."""
        ways: dict[str, dict[str, Any]] = {
            "plain": {},
            "lookup": {"prompt_lookup_num_tokens": 10},
            "draft": {"assistant_model": self._draft},
        }
        given = torch.tensor([prompt])
        with torch.inference_mode():
            found = self._target.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=tokens,
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([rounds]),
                **ways[mode],
                **more,
            )
        ids: list[int] = found[0].tolist()
        return ids
