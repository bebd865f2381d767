"""A small real HTTP server that speaks /v1/completions with server-sent events, well and badly.

    with OpenAIServer(script="return total") as server:
        settings = f'[daemon]\\nbackend = "openai"\\nendpoint = "{server.url}"\\n'
        ...
        server.asked          # the completion requests, with the time each came and the time it was hung up

`plan` says how request after request is answered, the last one for ever ("good" by default):

- "good": the script, a token (with `tokenizer`) or a character an event, then finish_reason and [DONE]
- "whole": the script in one JSON answer, as from a server that does not stream
- "slow": as "good" with a tenth of a second between events
- "split": as "good", but the bytes come in pieces of three, so that characters and objects are cut
- "stall": headers, then nothing until the client hangs up
- "mute": not even headers
- "reset": the connection is reset at once; "halfway": after two events; "short": the answer ends after two
- "html", "nothing" ({"id": "x"}), "garbage" (an event that is no JSON), "endless" (comments for ever)
- "429" and any other status, with `headers` for it: "429 Retry-After: 2"
- "unids": 400 for a prompt of ids, good for text; "unmasked": 400 for a regular expression

The script is a str, or a callable from the prompt's text to one. Events of a request with
`return_token_ids` carry ids where the server has a tokenizer.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from copilotd.backends.openai.bodies import ANYTHING
from copilotd.models.tokenizer import TokenizerVocabulary

LOGPROB = -0.25
"""of every id of a server with a tokenizer"""

Script = str | Callable[[str], str]


@dataclass
class Asked:
    body: dict[str, Any]
    headers: dict[str, str]
    connection: int
    """the client's port: equal for requests over one connection"""
    t: float = field(default_factory=time.monotonic)
    answered_as: str = ""
    sent: int = 0
    """events"""
    hung_up: float | None = None
    """when the client closed the connection before the end"""


class OpenAIServer:
    def __init__(
        self,
        script: Script = "",
        *,
        plan: Sequence[str] = ("good",),
        tokenizer: Path | None = None,
        key: str = "",
        model: str = "served",
        max_model_len: int | None = None,
        own_ids: Callable[[list[int]], list[int]] | None = None,
        certificate: tuple[Path, Path] | None = None,
        masks: bool = True,
    ) -> None:
        """`masks`: whether `structured_outputs` means anything to it; `own_ids` is what /tokenize makes of the tokenizer's ids; `certificate`: its file and its key's."""
        self.asked: list[Asked] = []
        self.paths: list[str] = []
        self.plan = list(plan)
        self.script = script
        self.key, self.model, self.max_model_len = key, model, max_model_len
        self.own_ids = own_ids
        self.masks = masks
        self.vocabulary = TokenizerVocabulary.from_folder(tokenizer) if tokenizer else None
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._http.ours = self  # type: ignore[attr-defined]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.scheme = "https" if certificate else "http"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    def next_answer(self) -> str:
        with self.lock:
            return self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]

    def text_of(self, prompt: str | list[int]) -> str:
        """A prompt of ids with its markers written out."""
        if isinstance(prompt, str):
            return prompt
        assert self.vocabulary is not None
        return b"".join(
            (self.vocabulary.marker(token) or "").encode() or self.vocabulary.token_bytes(token)
            for token in prompt
        ).decode(errors="replace")

    def prompts(self) -> list[str]:
        return [self.text_of(asked.body["prompt"]) for asked in self.asked]

    def wait(self, until: Callable[[], Any], seconds: float = 20.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := until()):
            assert time.monotonic() < end, "nothing came"
            time.sleep(0.005)
        return value

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def ours(self) -> OpenAIServer:
        return self.server.ours  # type: ignore[attr-defined, no-any-return]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.ours.paths.append(self.path)
        if self._may():
            model = {"id": self.ours.model, "object": "model", "max_model_len": self.ours.max_model_len}
            self._json({"object": "list", "data": [model]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.ours.paths.append(self.path)
        if not self._may():
            return
        if self.path == "/tokenize":
            self._tokenize(body)
            return
        asked = Asked(body, dict(self.headers), self.client_address[1])
        asked.answered_as = self.ours.next_answer()
        self.ours.asked.append(asked)
        with suppress(ConnectionError, BrokenPipeError, ssl.SSLError):
            self._answer(asked)

    def _may(self) -> bool:
        if self.ours.key and self.headers.get("Authorization") != f"Bearer {self.ours.key}":
            self._plain(401, "application/json", b'{"error": "bad key"}')
            return False
        return True

    def _tokenize(self, body: dict[str, Any]) -> None:
        if self.ours.vocabulary is None:
            self._plain(404, "application/json", b"{}")
            return
        ids = self.ours.vocabulary.encode(body["prompt"])
        self._json({"tokens": self.ours.own_ids(ids) if self.ours.own_ids else ids})

    def _answer(self, asked: Asked) -> None:
        kind, _, header = asked.answered_as.partition(" ")
        if kind == "unmasked":
            kind = "400" if "structured_outputs" in asked.body else "good"
        if kind == "unids":
            kind = "good" if isinstance(asked.body["prompt"], str) else "400"
        if kind.isdecimal():
            name, _, value = header.partition(": ")
            self._plain(int(kind), "text/html", b"<html>no</html>", {name: value} if name else {})
            return
        match kind:
            case "html":
                self._plain(200, "text/html", b"<html>oops</html>")
            case "nothing":
                self._json({"id": "x"})
            case "whole":
                text = self._text(asked)
                self._json({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})
            case "mute":
                self._until_hung_up(asked)
            case "reset":
                self._reset()
            case _:
                self._stream(asked, kind)

    def _stream(self, asked: Asked, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if kind == "stall":
            self._until_hung_up(asked)
            return
        if kind == "garbage":
            self._chunk(b"data: {garbage\n\n")
            return
        while kind == "endless":
            if self._hung_up(asked, 0.02):
                return
            self._chunk(b": still there\n\n")
        for event in self._events(asked):
            if kind == "halfway" and asked.sent == 2:
                self._reset()
                return
            if kind == "short" and asked.sent == 2:
                break
            if self._hung_up(asked, 0.1 if kind == "slow" else 0.0):
                return
            data = b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
            for start in range(0, len(data), 3) if kind == "split" else (0,):
                self._chunk(data[start : start + 3] if kind == "split" else data)
            asked.sent += 1
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, asked: Asked) -> Iterator[dict[str, Any]]:
        text, vocabulary = self._text(asked), self.ours.vocabulary
        pieces: list[tuple[str, list[int] | None]] = [(character, None) for character in text]
        if vocabulary is not None and asked.body.get("return_token_ids"):
            pieces = [(vocabulary.decode([token]), [token]) for token in vocabulary.encode(text)]
        most = asked.body.get("max_tokens", 16)
        for piece, ids in pieces[:most]:
            yield self._event(piece, ids, None)
        yield self._event(
            "", None if not pieces or pieces[0][1] is None else [], "length" if len(pieces) > most else "stop"
        )

    def _event(self, text: str, ids: list[int] | None, finish: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        if ids is not None:
            choice |= {
                "token_ids": ids,
                "logprobs": {"tokens": [text], "token_logprobs": [LOGPROB] * len(ids)},
            }
        return {"id": "x", "object": "text_completion", "choices": [choice]}

    def _text(self, asked: Asked) -> str:
        script, prompt = self.ours.script, self.ours.text_of(asked.body["prompt"])
        written = script(prompt) if callable(script) else script
        regex = asked.body.get("structured_outputs", {}).get("regex", "")
        if not regex or not self.ours.masks or re.fullmatch(regex, written):
            return written
        needed = re.sub(
            r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), regex[: -len(ANYTHING)]
        )
        return needed + (script(prompt + needed) if callable(script) else script)

    # ---- the connection ------------------------------------------------------------------------------------

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _until_hung_up(self, asked: Asked) -> None:
        while not self._hung_up(asked, 0.02):
            pass

    def _hung_up(self, asked: Asked, seconds: float) -> bool:
        """Wait; whether the client has closed its side meanwhile."""
        self.connection.settimeout(seconds or 0.0001)
        try:
            closed = self.connection.recv(1) == b""
        except (TimeoutError, ssl.SSLWantReadError, BlockingIOError):
            closed = False
        except OSError:
            closed = True
        finally:
            with suppress(OSError):
                self.connection.settimeout(None)
        if closed:
            asked.hung_up = time.monotonic()
            self.close_connection = True
        return closed

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _json(self, answer: object) -> None:
        self._plain(200, "application/json", json.dumps(answer).encode())

    def _plain(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
