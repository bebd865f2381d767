"""The process of its own for a contender that lives in Python: requests and answers as JSON, line by line.

python -m peers.contenders '{"kind": "copilotd", …}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import msgspec

from peers.worker import Asked, Infill, Job, Run


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


def loaded(job: Job) -> Any:
    if job.kind == "copilotd":
        return Copilotd(job)
    from peers.assisted import Transformers

    return Transformers(job)


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints
    contender = loaded(job)
    answers.write(json.dumps(contender.about()).encode() + b"\n")
    for line in sys.stdin.buffer:
        asked = msgspec.json.decode(line, type=Asked | Infill)
        said = contender.infill(asked) if isinstance(asked, Infill) else contender.run(asked)
        answers.write(msgspec.json.encode(said) + b"\n")


if __name__ == "__main__":
    main()
