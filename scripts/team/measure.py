"""What copilotd adds to a vLLM behind it, from the keystroke to the ghost text, and whether it may be trusted."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median, quantiles

import httpx2
import msgspec
from msgspec import Struct

from copilotd.backends.openai.backend import OpenAIBackend
from copilotd.cli.bench import cut_prompts, standard_library
from copilotd.config import DaemonSettings, SessionSettings, Settings
from copilotd.replay.editor import Editor
from copilotd.replay.trace import Edit
from team.peer import Vllm
from team.relay import Relay

PLACES = 40
WARM_UP = 3
KEYS = 8
"""typed at each place, one request after each"""
ABORTS = 20
SAME = 24
FILE_CHARACTERS = 12_000


class Added(Struct, frozen=True):
    """Milliseconds beside the server's own, over requests that the server brought to an end."""

    requests: int
    p50: float
    p95: float
    server_p50: float
    asked_twice: int
    """the model did not begin with what was typed already, so that was put before its answer"""


class Aborts(Struct, frozen=True):
    """Milliseconds from the editor's cancel until the server's metrics show no running request."""

    cancels: int
    p50: float
    most: float
    look_p50: float
    """of which so many are one look at the metrics"""


class Found(Struct, frozen=True, kw_only=True):
    model: str
    speculation: str
    same_text: int
    """of `prompts`: through copilotd's backend and asked directly"""
    prompts: int
    added_ms: Added
    """while one types on"""
    added_cold_ms: Added
    """at the first key in a file just opened, whose prompt is laid anew"""
    abort_ms: Aborts


def run(vllm: Vllm, traces: list[Path], json: Path | None) -> None:
    """Prints what was found; needs a machine with nothing else to do."""
    with tempfile.TemporaryDirectory(prefix="copilotd-vllm-") as scratch, _served(vllm, Path(scratch)):
        same = _same_text(vllm)
        added, cold, aborts = asyncio.run(_through_the_editor(vllm, Path(scratch)))
        found = Found(
            model=vllm.name,
            speculation=vllm.speculate or "none",
            same_text=same,
            prompts=SAME,
            added_ms=added,
            added_cold_ms=cold,
            abort_ms=aborts,
        )
        _show(found)
        if json is not None:
            json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        if traces:
            with _home(Path(scratch) / "replay", vllm, vllm.port) as environment:
                command = [sys.executable, "-P", "-m", "copilotd", "replay", *map(str, traces)]
                subprocess.run(command, env=environment, check=True)


@contextmanager
def _served(vllm: Vllm, scratch: Path) -> Iterator[None]:
    """With a server of our own, unless one answers at the port already."""
    with httpx2.Client(trust_env=False) as client:
        try:
            client.get(f"{vllm.url}/models", timeout=2).raise_for_status()
            print(f"measuring the server that answers at {vllm.url}", flush=True)
            yield
            return
        except httpx2.HTTPError:
            pass
    log = scratch / "vllm.log"
    process = vllm.serve(log)
    try:
        vllm.wait(process, log)
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _home(home: Path, vllm: Vllm, port: int) -> Iterator[dict[str, str]]:
    """The environment of a copilotd that asks the server at `port`; its daemon is stopped at the end."""
    home.mkdir(mode=0o700)
    settings = vllm.settings().replace(f":{vllm.port}/", f":{port}/")
    (home / "config.toml").write_text(settings)
    environment = os.environ | {"COPILOTD_HOME": str(home)}
    try:
        yield environment
    finally:
        stop = [sys.executable, "-P", "-m", "copilotd", "stop"]
        subprocess.run(stop, env=environment, check=False, capture_output=True)


def _same_text(vllm: Vllm) -> int:
    daemon = DaemonSettings(
        backend="openai", endpoint=vllm.url, endpoint_model=vllm.name, endpoint_tokenizer=str(vllm.model)
    )
    backend = OpenAIBackend.load(Settings(daemon=daemon), lambda what, done, total: None)
    same = 0
    try:
        with httpx2.Client(trust_env=False, timeout=120) as client:
            # the first one of its kind makes vLLM compile
            first = {"model": vllm.name, "prompt": "def f(x):\n    ", "max_tokens": 4, "logprobs": 0}
            client.post(
                f"{vllm.url}/completions", json=first | {"structured_outputs": {"regex": "r[^\\x00]*"}}
            )
            requests = cut_prompts(standard_library(), backend.vocabulary, SAME, 32, backend.context_tokens)
            for request in requests:
                ours = backend.generate(request, lambda: False, lambda ids, logprobs=(): False)
                body = {
                    "model": vllm.name,
                    "prompt": list(request.prompt),
                    "max_tokens": 32,
                    "temperature": 0,
                    "stop_token_ids": sorted(request.stop_ids),
                    "skip_special_tokens": False,
                }
                answer = client.post(f"{vllm.url}/completions", json=body).json()
                theirs = answer["choices"][0]["text"]
                text = backend.vocabulary.decode(ours.ids)
                same += theirs.partition("<|")[0].rstrip("\ufffd") == text.partition("<|")[0].rstrip("\ufffd")
    finally:
        backend.close()
    return same


async def _through_the_editor(vllm: Vllm, scratch: Path) -> tuple[Added, Added, Aborts]:
    relay = Relay(vllm.port)
    port = await relay.start()
    folder = scratch / "work"
    folder.mkdir()
    try:
        with _home(scratch / "home", vllm, port) as environment:
            short = SessionSettings(max_new_tokens=8, max_latency_ms=0)
            async with Editor(folder, short, environment) as editor:
                await asyncio.wait_for(editor.ready.wait(), 60)
                added, cold = await _added(editor, relay)
            long = SessionSettings(max_new_tokens=512, max_latency_ms=0, multiline="always")
            async with Editor(folder, long, environment) as editor:
                await asyncio.wait_for(editor.ready.wait(), 60)
                aborts = await _aborts(editor, vllm)
    finally:
        relay.close()
    return added, cold, aborts


def _texts() -> Iterator[tuple[str, int]]:
    """Python's own files, shortened, and an offset in each after the first characters of a line."""
    rng = random.Random(0)
    files = standard_library()
    while True:
        text = rng.choice(files).read_text("utf-8", "replace")
        start = rng.randrange(max(1, len(text) - FILE_CHARACTERS))
        text = text[start : start + FILE_CHARACTERS]
        lines = [match.end() for match in re.finditer(r"(?m)^ *\w+ \w+ ?", text)]
        if lines:
            yield text, rng.choice(lines)


def _place(text: str, offset: int) -> tuple[int, int]:
    line = text.count("\n", 0, offset)
    return line, offset - (text.rfind("\n", 0, offset) + 1)


async def _added(editor: Editor, relay: Relay) -> tuple[Added, Added]:
    """While one types, and at the first key in a file."""
    typing, cold = _Sums(), _Sums()
    for number, (text, offset) in enumerate(islice(_texts(), WARM_UP + PLACES)):
        path = f"file{number}.py"
        line, column = _place(text, offset)
        end = offset + len(text[offset:].partition("\n")[0])
        editor.open(path, text[:offset] + text[end:])
        await asyncio.sleep(0.2)
        for key, character in enumerate(["", *text[offset:end][:KEYS]]):
            if character:
                editor.change(path, Edit(((line, column), (line, column)), character))
                column += 1
            asked = time.perf_counter()
            _, reply = editor.complete(path, (line, column))
            await reply
            answered = time.perf_counter()
            if number >= WARM_UP:
                (typing if key else cold).take(asked, answered, relay)
            await asyncio.sleep(0.1)
        editor.close(path)
    return typing.found(), cold.found()


class _Sums:
    def __init__(self) -> None:
        self._added: list[float] = []
        self._servers: list[float] = []
        self._twice = 0

    def take(self, asked: float, answered: float, relay: Relay) -> None:
        """One request, if the server was asked for it and came to its end."""
        exchanges = [one for one in relay.exchanges if one.within(asked, answered)]
        if not exchanges or not exchanges[-1].whole:
            return
        server = sum((one.ended or answered) - one.asked for one in exchanges)
        self._twice += len(exchanges) > 1
        self._servers.append(server * 1e3)
        self._added.append((answered - asked - server) * 1e3)

    def found(self) -> Added:
        return Added(
            requests=len(self._added),
            p50=median(self._added),
            p95=quantiles(self._added, n=20)[-1],
            server_p50=median(self._servers),
            asked_twice=self._twice,
        )


async def _aborts(editor: Editor, vllm: Vllm) -> Aborts:
    delays: list[float] = []
    looks: list[float] = []
    metrics = f"http://127.0.0.1:{vllm.port}/metrics"
    async with httpx2.AsyncClient(trust_env=False) as client:

        async def running() -> bool:
            began = time.perf_counter()
            text = (await client.get(metrics)).text
            looks.append((time.perf_counter() - began) * 1e3)
            found = re.search(r"^vllm:num_requests_running\{[^}]*\} ([\d.]+)", text, re.MULTILINE)
            return found is not None and float(found[1]) > 0

        for number, (text, offset) in enumerate(islice(_texts(), 6 * ABORTS)):
            if len(delays) == ABORTS:
                break
            path = f"long{number}.py"
            editor.open(path, text)
            request, reply = editor.complete(path, _place(text, offset))
            while not reply.done() and not await running():
                pass
            if not reply.done():
                cancelled = time.perf_counter()
                editor.cancel(request)
                while await running():
                    pass
                delay = (time.perf_counter() - cancelled) * 1e3
                if (await reply).outcome == "cancelled":
                    delays.append(delay)
            await reply
            editor.close(path)
            await asyncio.sleep(0.3)
    return Aborts(len(delays), median(delays), max(delays), median(looks))


def _show(found: Found) -> None:
    abort = found.abort_ms
    print(f"{found.model} at vLLM, speculation: {found.speculation}")
    print(f"the same text as asked directly: {found.same_text} of {found.prompts} prompts")
    for when, added in (("while one types", found.added_ms), ("in a file just opened", found.added_cold_ms)):
        print(
            f"{when}, copilotd adds {added.p50:.1f} ms (p50), {added.p95:.1f} ms (p95) to the server's "
            f"{added.server_p50:.0f} ms, over {added.requests} requests; {added.asked_twice} asked the server twice"
        )
    print(
        f"a cancel shows in the server's metrics after {abort.p50:.0f} ms (p50), {abort.most:.0f} ms at most, "
        f"over {abort.cancels} cancels; one look takes {abort.look_p50:.0f} ms of it",
        flush=True,
    )
