"""A process of its own for a contender that lives in Python: requests and answers as JSON, line by line.

python -m peers.worker '{"kind": "copilotd", …}'
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
from msgspec import Struct

from peers.llama import MissingPeer, peak_mb
from peers.prompts import Prompt


class Job(Struct, frozen=True, kw_only=True):
    """What the process loads."""

    kind: str
    """copilotd or transformers"""
    target: str
    draft: str = ""
    quantisation: str = "auto"
    threads: int
    context: int


class Asked(Struct, frozen=True):
    prompt: Prompt
    tokens: int
    mode: str
    """copilotd: plain, auto, echo; transformers: plain, lookup, draft"""


class Run(Struct, frozen=True, kw_only=True):
    """One completion."""

    ids: list[int]
    timed: int
    """ids written after the first round"""
    decode_ms: float
    """they took so long"""
    prompt_tokens: int
    prompt_ms: float
    steps: int
    """of the target, the first included; 0: not known"""
    drafted: int = 0
    accepted: int = 0
    counted_ms: float = 0.0
    """what the steps of the timed rounds cost by the calibrated table, draft steps included"""
    plain_ms: float = 0.0
    """what as many plain steps as ids were timed cost by it"""


class Contender(Protocol):
    name: str

    def run(self, asked: Asked) -> Run: ...


class Copilotd:
    def __init__(self, job: Job) -> None:
        from copilotd.backends.local import LocalBackend
        from copilotd.config import DaemonSettings, Settings

        settings = DaemonSettings(
            model=job.target,
            draft=job.draft or "none",
            quantisation=job.quantisation,
            threads=job.threads,
            context_tokens=job.context,
        )
        self._backend = LocalBackend.load(Settings(daemon=settings), lambda what, done, total: None)
        self.name = f"copilotd {self._backend.describe().quantisation}"
        engine = self._backend.engine
        self._target_rows = counted(engine.target)
        self._draft_rows = counted(engine.draft) if engine.draft is not None else []
        self._written: dict[tuple[int, ...], list[int]] = {}

    def about(self) -> dict[str, Any]:
        from copilotd.engine.bench import read_bandwidth

        costs = self._backend.engine.costs
        return {
            "name": self.name,
            "bytes_per_token": self._backend.bytes_per_token,
            "bandwidth": read_bandwidth("cpu"),
            "ceiling": max(rows * costs.target_ms(1) / ms for rows, ms in costs.target),
            "target_ms": dict(costs.target),
            "draft_ms": costs.draft_ms(1) if costs.draft else 0.0,
        }

    def run(self, asked: Asked) -> Run:
        from copilotd.engine.generation import GenerationRequest, Surroundings

        prompt, engine = asked.prompt, self._backend.engine
        key = tuple(prompt.ids)
        if asked.mode == "echo" and key not in self._written:
            self.run(Asked(prompt, asked.tokens, "plain"))
        request = GenerationRequest(
            prompt=prompt.ids,
            echo=self._written[key] if asked.mode == "echo" else (),
            surroundings=Surroundings(before=prompt.before, after=prompt.after),
            max_new_tokens=asked.tokens,
            stop_ids=self._backend.vocabulary.control,
            speculation="off" if asked.mode == "plain" else "auto",
            slot=("bench", "plain" if asked.mode == "plain" else "auto"),
        )
        if asked.mode != "plain":
            engine.warm_draft(request, lambda: False)
        rounds: list[tuple[float, int]] = []

        def emit(ids: Any, logprobs: Any = ()) -> bool:
            if not rounds:  # the prompt's last chunk is no decoding
                self._target_rows.clear()
                self._draft_rows.clear()
            rounds.append((time.perf_counter(), len(ids)))
            return False

        found = engine.generate(request, lambda: False, emit)
        if asked.mode == "plain":
            self._written[key] = found.ids
        counters, costs = found.counters, engine.costs
        timed = sum(count for _, count in rounds[1:])
        spent = sum(costs.target_ms(rows) for rows in self._target_rows)
        return Run(
            ids=found.ids,
            timed=timed,
            counted_ms=spent + sum(costs.draft_ms(rows) for rows in self._draft_rows),
            plain_ms=timed * costs.target_ms(1),
            decode_ms=(rounds[-1][0] - rounds[0][0]) * 1e3 if rounds else 0.0,
            prompt_tokens=counters.prefill_tokens,
            prompt_ms=counters.prefill_ms,
            steps=counters.target_steps,
            drafted=sum(counters.drafted.values()),
            accepted=sum(counters.accepted.values()),
        )


def counted(runner: Any) -> list[int]:
    """Every step's rows from now on."""
    rows: list[int] = []
    step = runner.step

    def recorded(cache: Any, ids: Any, wanted: int | None = None, **more: Any) -> Any:
        rows.append(len(ids))
        return step(cache, ids, more["rows"] if wanted is None else wanted)

    runner.step = recorded
    return rows


class Transformers:
    def __init__(self, job: Job) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        torch.set_num_threads(job.threads)
        dtype = torch.float32 if job.quantisation == "fp32" else torch.bfloat16
        self._target = AutoModelForCausalLM.from_pretrained(job.target, dtype=dtype).eval()
        self._draft = (
            AutoModelForCausalLM.from_pretrained(job.draft, dtype=dtype).eval() if job.draft else None
        )
        for model in (self._target, self._draft):
            if model is not None:
                model.generation_config.eos_token_id = model.config.eos_token_id
                model.generation_config.pad_token_id = model.config.eos_token_id
        self.name = f"transformers {job.quantisation}"

    def about(self) -> dict[str, Any]:
        return {"name": self.name}

    def run(self, asked: Asked) -> Run:
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        rounds: list[tuple[float, int]] = []

        class Clock(StoppingCriteria):
            def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
                rounds.append((time.perf_counter(), input_ids.shape[1]))
                return torch.zeros(input_ids.shape[0], dtype=torch.bool)

        ways: dict[str, dict[str, Any]] = {
            "plain": {},
            "lookup": {"prompt_lookup_num_tokens": 10},
            "draft": {"assistant_model": self._draft},
        }
        prompt = torch.tensor([asked.prompt.ids])
        started = time.perf_counter()
        with torch.inference_mode():
            found = self._target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=asked.tokens,
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([Clock()]),
                **ways[asked.mode],
            )
        ids = found[0, prompt.shape[1] :].tolist()
        return Run(
            ids=ids,
            timed=rounds[-1][1] - rounds[0][1],
            decode_ms=(rounds[-1][0] - rounds[0][0]) * 1e3,
            prompt_tokens=prompt.shape[1],
            prompt_ms=(rounds[0][0] - started) * 1e3,
            steps=len(rounds),
        )


class Worker:
    """A contender in its process. `with` starts and ends it. Raises MissingPeer when it cannot be loaded."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> Self:
        scripts = str(Path(__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": scripts, "OMP_NUM_THREADS": str(self._job.threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.worker", msgspec.json.encode(self._job).decode()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self.about: dict[str, Any] = self._read(dict)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, asked: Asked) -> Run:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(asked) + b"\n")
        self._process.stdin.flush()
        return self._read(Run)

    @property
    def rss_mb(self) -> float:
        return peak_mb(self._process.pid)

    def _read(self, kind: Any) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MissingPeer(f"the process of {self._job.kind} ended (code {self._process.wait()})")
        return msgspec.json.decode(line, type=kind)


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints
    contender = {"copilotd": Copilotd, "transformers": Transformers}[job.kind](job)
    answers.write(json.dumps(contender.about()).encode() + b"\n")
    for line in sys.stdin.buffer:
        answers.write(msgspec.json.encode(contender.run(msgspec.json.decode(line, type=Asked))) + b"\n")


if __name__ == "__main__":
    main()
