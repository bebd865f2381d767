"""A backend that writes what it is told, and a real daemon process that has it.

`ScriptedBackend(script, ...)` implements `copilotd.backends.base.Backend` without torch:

- script: what the "model" writes after the cursor: a str, ids, or a callable (prompt text -> str).
  `Rules({"needle in the prompt": "answer", ...}, otherwise="")` is such a callable.
- delay_per_token_ms: time of a "forward step"; one id per step, `cancelled` is looked at every 5 ms.
- prefill_delay_ms: waited before the first id.
- keep=False leaves `requests` empty, for processes that run long;
- record_tokens=True records every id as it comes;
- tokenizer: folder with a tokenizer.json; with one the workspace is indexed;
- smaller: the model that is loaded when memory does not suffice;
- offered: names of models that could be fetched in its place;
- samples: what it writes instead, one after the other and round again, where ids are to be drawn;
- doubts: characters that it writes without being sure of them (log-probabilities of -5; else 0).
- noise: prints to stdout, fd 1, a subprocess, warnings and logging at load and at every generation.
- `backend.starts` counts generations; `backend.requests` holds every exact GenerationRequest;
  `backend.prompts` the same as text, with control tokens written out ("<|fim_prefix|>…").
- healing: where the request's constraint allows exactly one id, that id comes out and the script waits, so
  the script is always what follows the cursor.

`ScriptedDaemon(home, script="…", ...)` starts a REAL daemon process with it (a child of the test, not
detached). `home` is the test's own folder: socket, state, settings and records live there and nowhere else.

    with ScriptedDaemon(tmp_path, script="return total", delay_per_token_ms=1) as daemon:
        subprocess.run([sys.executable, "-P", "-m", "copilotd", "--stdio"], env=daemon.env, …)
        with daemon.client() as client:          # a raw wire client (tests/support/wire_client.py)
            client.hello()
            ...
        daemon.starts()                          # generations started, over all processes with this home
        daemon.prompts()                         # their prompts as text
        daemon.records("load")                   # every load of the models that was tried
        daemon.restart()                         # -9, and a new process with the same home

With `start=False` nothing is started: `daemon.command + ["--detach"]` is what a front may start
(`launch.connect(daemon.env, command)`), within `daemon.ended_at_last()`.

Options of ScriptedDaemon beside the backend's:
- rules: {"needle": "answer"} instead of a script, first needle found in the prompt wins;
- loads: one outcome per load attempt, the last one repeats: "ok", "error:MESSAGE" (BackendError),
  "oom" (an exception named OutOfMemoryError), "bug:MESSAGE" (RuntimeError), "die" (the process ends),
  "wait:SECONDS" (then ok), "progress" (reports megabytes 0…100, then ok), "hold" (waits until
  `daemon.release_load()`, then ok);
- failures: one outcome per generation, the last one repeats: "ok", "oom", "cuda", "bug:MESSAGE", "die";
- settings: TOML text of the user's settings file;
- plain: true uses tests/support/plain_completer.py in the place of completion/;
- version: what the daemon says it is; "9999" by default, so that no front replaces it.

Nothing in the product names this code: the process is `python -P tests/support/scripted_daemon.py`, which
passes the backend to the daemon's constructor.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from copilotd.backends.base import BackendError, Description, Progress
from copilotd.daemon.lock import start_lock
from copilotd.engine.generation import (
    Cancelled,
    Counters,
    Emit,
    Finish,
    Generation,
    GenerationRequest,
)
from copilotd.models.offer import Offer
from copilotd.models.vocabulary import FimTokens

ROOT = Path(__file__).resolve().parents[2]
CONTROL = (
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
)


class ByteVocabulary:
    """ids 0…255 are bytes, then Qwen's control tokens."""

    size = 256 + len(CONTROL)
    control = frozenset(range(256, 256 + len(CONTROL)))
    fim: FimTokens | None = FimTokens(
        prefix=256 + CONTROL.index("<|fim_prefix|>"),
        suffix=256 + CONTROL.index("<|fim_suffix|>"),
        middle=256 + CONTROL.index("<|fim_middle|>"),
        repository=256 + CONTROL.index("<|repo_name|>"),
        file=256 + CONTROL.index("<|file_sep|>"),
    )
    begin: int | None = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="ignore")

    def render(self, ids: Sequence[int]) -> str:
        """The ids as text with control tokens written out."""
        return b"".join(bytes([i]) if i < 256 else CONTROL[i - 256].encode() for i in ids).decode(
            errors="replace"
        )


class OutOfMemoryError(RuntimeError):
    """Named as torch's is."""


class AcceleratorError(RuntimeError):
    """Named as torch's is."""


class Rules:
    """First needle that stands in the prompt gives the answer."""

    def __init__(self, rules: dict[str, str], otherwise: str = "") -> None:
        self._rules = rules
        self._otherwise = otherwise

    def __call__(self, prompt: str) -> str:
        return next((answer for needle, answer in self._rules.items() if needle in prompt), self._otherwise)


Script = str | Sequence[int] | Callable[[str], str]


def make_noise() -> None:
    """Everything a library may do to stdout."""
    print("loading 50%", end="\r")
    os.write(1, b"native log line\n")
    subprocess.run(["echo", "child says hi"], check=False)
    warnings.warn("deprecated", stacklevel=1)
    logging.basicConfig(stream=sys.stdout)
    logging.getLogger("noise").warning("a log line on stdout")


def fail(kind: str) -> None:
    """Raise what `kind` says; nothing for "ok"."""
    name, _, text = kind.partition(":")
    match name:
        case "error":
            raise BackendError(text)
        case "oom":
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        case "cuda":
            raise AcceleratorError("CUDA error: an illegal memory access was encountered")
        case "bug":
            raise RuntimeError(text)
        case "die":
            os._exit(9)


class ScriptedBackend:
    def __init__(
        self,
        script: Script = "",
        *,
        delay_per_token_ms: float = 0.0,
        prefill_delay_ms: float = 0.0,
        noise: bool = False,
        context_tokens: int = 2048,
        prefill_tokens_per_s: float = 1e6,
        failures: Sequence[str] = (),
        record: Callable[[dict[str, Any]], None] = lambda event: None,
        name: str = "scripted",
        smaller: str = "",
        offered: Sequence[str] = (),
        keep: bool = True,
        record_tokens: bool = False,
        tokenizer: str = "",
        samples: Sequence[str] = (),
        doubts: str = "",
    ) -> None:
        self.name = name
        self.smaller = smaller
        self.offered = offered
        self.tokenizer = tokenizer
        self.vocabulary = ByteVocabulary()
        self.context_tokens = context_tokens
        self.prefill_tokens_per_s = prefill_tokens_per_s
        self.requests: list[GenerationRequest] = []
        self.warmed: list[GenerationRequest] = []
        self.forgotten: list[Hashable] = []
        self.closed = False
        self.shrunk = 0
        self._script = script
        self._delay = delay_per_token_ms / 1000
        self._prefill_delay = prefill_delay_ms / 1000
        self._noise = noise
        self._failures = list(failures)
        self._record = record
        self._keep = keep
        self._record_tokens = record_tokens
        self._samples = cycle(samples)
        self._doubts = doubts.encode()
        self._last: Sequence[int] = ()

    @property
    def starts(self) -> int:
        return len(self.requests)

    @property
    def prompts(self) -> list[str]:
        return [self.vocabulary.render(request.prompt) for request in self.requests]

    def describe(self) -> Description:
        return Description(
            target=self.name,
            quantisation="none",
            device="none",
            kv_bytes=1,
            smaller=self.smaller,
            offers=tuple(
                Offer(name=name, bytes=93_000_000, source="nowhere", licence="free") for name in self.offered
            ),
            tokenizer=self.tokenizer,
        )

    def forget(self, document: Hashable) -> None:
        self.forgotten.append(document)

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        if self._keep:
            self.warmed.append(request)
        return not cancelled()

    def shrink(self) -> bool:
        self.shrunk += 1
        return self.shrunk <= 1

    def close(self) -> None:
        self.closed = True
        self._record({"event": "close"})

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        if self._keep:
            self.requests.append(request)
        prompt = self.vocabulary.render(request.prompt)
        self._record({"event": "start", "prompt": list(request.prompt), "text": prompt})
        if self._noise:
            make_noise()
        if self._failures:
            fail(self._failures.pop(0) if len(self._failures) > 1 else self._failures[0])
        same = (a == b for a, b in zip(self._last, request.prompt, strict=False))
        reused = sum(1 for _ in takewhile(bool, same))
        self._last = request.prompt
        counters = Counters(reused_tokens=reused, prefill_tokens=len(request.prompt) - reused)
        ids: list[int] = []
        logprobs: list[float] = []
        finish = self._write(request, prompt, cancelled, emit, ids, logprobs)
        counters.target_steps = counters.generated_tokens = len(ids)
        self._record({"event": "end", "finish": finish, "emitted": len(ids)})
        return Generation(ids, logprobs, finish, counters)

    def _write(
        self,
        request: GenerationRequest,
        prompt: str,
        cancelled: Cancelled,
        emit: Emit,
        ids: list[int],
        logprobs: list[float],
    ) -> Finish:
        if not _pause(self._prefill_delay, cancelled):
            return "cancelled"
        script = self._script(prompt) if callable(self._script) else self._script
        if not request.sampling.greedy:
            script = next(self._samples, script)
        left = iter(self.vocabulary.encode(script) if isinstance(script, str) else script)
        constraint = request.constraint
        state = constraint.start() if constraint else 0
        while len(ids) < request.max_new_tokens:
            if not _pause(self._delay, cancelled):
                return "cancelled"
            mask = constraint.mask(state) if constraint else None
            allowed = [] if mask is None else [i for i, may in enumerate(mask.tolist()) if may]
            token = allowed[0] if len(allowed) == 1 else next(left, None)
            if token is None or token in request.stop_ids:
                return "stop"
            if allowed and token not in allowed:
                token = allowed[0]
            state = constraint.next(state, token) if constraint else 0
            ids.append(token)
            logprobs.append(
                -5.0 if any(byte in self._doubts for byte in self.vocabulary.token_bytes(token)) else 0.0
            )
            if self._record_tokens:
                self._record({"event": "token"})
            if emit([token], logprobs[-1:]):
                return "halted"
        return "length"


def _pause(seconds: float, cancelled: Cancelled) -> bool:
    """Wait as a forward step would. False: cancelled meanwhile."""
    end = time.monotonic() + seconds
    while not cancelled():
        left = end - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(left, 0.005))
    return False


def make_scripted(options: dict[str, Any], records: Path) -> Callable[[Any, Progress], ScriptedBackend]:
    """A `make_backend` for the daemon's constructor; `options` as ScriptedDaemon takes them."""
    options = dict(options)
    loads = list(options.pop("loads", ["ok"]))
    if "rules" in options:
        options["script"] = Rules(options.pop("rules"), options.pop("script", ""))

    def record(event: dict[str, Any]) -> None:
        with records.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "t": time.monotonic(), **event}) + "\n")

    def load(settings: Any, progress: Progress) -> ScriptedBackend:
        outcome = loads.pop(0) if len(loads) > 1 else loads[0]
        record({"event": "load", "outcome": outcome, "model": settings.daemon.model})
        if options.get("noise"):
            make_noise()
        if outcome == "hold":
            while not records.with_name("release-load").exists():
                progress("scripted", 1.0, 100.0)
                time.sleep(0.005)
        if outcome == "progress":
            for done in range(0, 101, 10):
                progress("scripted", float(done), 100.0)
                time.sleep(0.02)
        if outcome.startswith("wait:"):
            time.sleep(float(outcome[5:]))
        fail(outcome)
        return ScriptedBackend(
            record=record,
            keep=False,
            **options | ({"smaller": ""} if settings.daemon.model == options.get("smaller") else {}),
        )

    return load


def own_folder_environment(home: Path) -> dict[str, str]:
    """os.environ with every folder of ours under `home`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COPILOTD_", "XDG_"))}
    return environment | {
        "COPILOTD_HOME": str(home),
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }


class ScriptedDaemon:
    """A real daemon process with a ScriptedBackend; see the top of this file."""

    def __init__(self, home: Path, *, settings: str = "", start: bool = True, **options: Any) -> None:
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.env = own_folder_environment(home)
        self._options = options
        self._records = home / "records.jsonl"
        if settings:
            (home / "config.toml").write_text(settings)
        self.process: subprocess.Popen[str] | None = None
        if start:
            self.start()

    @property
    def command(self) -> list[str]:
        """Starts the daemon; gives `ready SOCKET` or `failed MESSAGE` as the first line on stdout."""
        script = ROOT / "tests" / "support" / "scripted_daemon.py"
        return [sys.executable, "-P", str(script), str(self._records), json.dumps(self._options)]

    def start(self) -> None:
        """A new process; returns when its socket answers."""
        self.process = subprocess.Popen(
            self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise AssertionError(f"the scripted daemon did not start: {line!r}")
        self.socket = Path(line.removeprefix("ready ").rstrip("\n"))

    @contextmanager
    def ended_at_last(self) -> Iterator[ScriptedDaemon]:
        """For daemons that fronts started with `command + ["--detach"]`: none is left behind.

        They are killed with -9; what else they started has to end by itself then.
        """
        try:
            yield self
        finally:
            for pid in self.living():
                os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + 30
            while orphans := self._processes():
                if time.monotonic() > end:
                    for pid in orphans:
                        os.kill(pid, signal.SIGKILL)
                    raise AssertionError(f"processes outlived their daemon: {list(orphans.values())}")
                time.sleep(0.05)

    def living(self) -> list[int]:
        """pids of the daemons with this home that run now, whoever started them."""
        return [
            pid
            for pid, words in self._processes().items()
            if "serve" in words or any(word.endswith("scripted_daemon.py") for word in words)
        ]

    def _processes(self) -> dict[int, list[str]]:
        """Command lines of all processes with this home."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_text(errors="replace").split("\0")
                running = (process / "stat").read_text().rpartition(") ")[2][0] != "Z"
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if running and f"COPILOTD_HOME={self.home}".encode() in environment:
                found[int(process.name)] = words
        return found

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """-9 and a new process, before any front can start a daemon of its own."""
        lock = start_lock(self.env)
        while not lock.acquire():
            time.sleep(0.01)
        try:
            self.kill()
            self.start()
        finally:
            lock.release()

    def terminate(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> ScriptedDaemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A raw wire client on this daemon's socket."""
        from tests.support.wire_client import WireClient

        with WireClient(self.socket) as client:
            yield client

    def release_load(self) -> None:
        """Let a load that is held ("hold") go on."""
        (self.home / "release-load").touch()

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        if not self._records.exists():
            return []
        whole, _, _unfinished = self._records.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if event in (None, line["event"])]

    def starts(self) -> int:
        return len(self.records("start"))

    def prompts(self) -> list[str]:
        return [record["text"] for record in self.records("start")]
