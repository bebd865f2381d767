"""A contender that lives in Python, in a process of its own: what goes to it and what comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from peers.llama import Completion, MissingPeer, peak_mb
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
    """transformers: of the prompts that are filled in"""


class Asked(Struct, frozen=True, tag=True):
    prompt: Prompt
    tokens: int
    mode: str
    """copilotd: plain, auto, echo; transformers: plain, lookup, draft"""


class Infill(Struct, frozen=True, tag=True):
    """What llama-server's /infill is asked, for transformers."""

    mode: str
    """lookup, draft"""
    prefix: str
    suffix: str
    middle: str
    tokens: int
    limit_ms: float


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


class Worker:
    """A contender in its process. `with` starts and ends it. Raises MissingPeer when it cannot be loaded."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> Self:
        scripts = str(Path(__file__).parents[1])
        environment = os.environ | {"PYTHONPATH": scripts, "OMP_NUM_THREADS": str(self._job.threads)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.contenders", msgspec.json.encode(self._job).decode()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        try:
            self.about: dict[str, Any] = self._read(dict)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with self._process:  # which closes what we read from, too
            self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def run(self, asked: Asked) -> Run:
        return self._answer(asked, Run)

    def infill(
        self, mode: str, prefix: str, suffix: str, middle: str, tokens: int, limit_ms: float
    ) -> Completion:
        return self._answer(Infill(mode, prefix, suffix, middle, tokens, limit_ms), Completion)

    @property
    def rss_mb(self) -> float:
        return peak_mb(self._process.pid)

    def _answer(self, asked: Asked | Infill, kind: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(asked) + b"\n")
        self._process.stdin.flush()
        return self._read(kind)

    def _read(self, kind: Any) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MissingPeer(f"the process of {self._job.kind} ended (code {self._process.wait()})")
        return msgspec.json.decode(line, type=kind)
