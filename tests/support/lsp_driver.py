"""A raw LSP client: writes and reads the frames of the real `copilotd --stdio` itself, and strictly.

    with LspProcess(env) as editor:
        editor.initialize()
        editor.open("file:///w/a.py", "def f():\n    ret")
        items = editor.complete("file:///w/a.py", (1, 7))

Every byte on stdout must belong to a well-formed frame; the first that does not fails the next wait and the
end of the test. Nothing of the product is imported here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Message = dict[str, Any]
Place = tuple[int, int]

COMMAND = (sys.executable, "-P", "-m", "copilotd", "--stdio")
PATIENCE = 30.0
"""seconds any wait lasts at most, many times what is seen on an idle machine"""


def frame(message: object) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def position(place: Place) -> Message:
    return {"line": place[0], "character": place[1]}


def span(start: Place, end: Place) -> Message:
    return {"start": position(start), "end": position(end)}


class LspProcess:
    def __init__(
        self,
        env: Mapping[str, str],
        command: Sequence[str] = COMMAND,
        cwd: Path | None = None,
        answers: Mapping[str, object] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.answers = dict(answers or {})
        """what the editor answers to the server's requests, by method; null for the rest"""
        self.received: list[Message] = []
        self.violation = ""
        self.stderr = b""
        self._ids = iter(range(1, 1 << 30))
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._ended = False
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> LspProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for thread in self._threads:
            thread.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        if kind is None:
            assert not self.violation, self.violation

    # ---- out ---------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin
        with self._writing:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, *messages: Message) -> None:
        """All messages in one write."""
        self.send_bytes(b"".join(frame({"jsonrpc": "2.0", **message}) for message in messages))

    def notify(self, method: str, params: object = None) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: object = None, number: int | str | None = None) -> int | str:
        number = next(self._ids) if number is None else number
        self.send({"id": number, "method": method, "params": params})
        return number

    def close_stdin(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE)

    # ---- in ----------------------------------------------------------------------------------------------

    def wait(self, until: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """The first true value of `until()`, looked at whenever something has come."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (value := until()):
                assert not self.violation, self.violation
                left = deadline - time.monotonic()
                assert left > 0, f"nothing in {seconds} s; stderr: {self.stderr.decode(errors='replace')}"
                assert not self._ended, f"the server ended; stderr: {self.stderr.decode(errors='replace')}"
                self._changed.wait(left)
            return value

    def responses(self, number: int | str) -> list[Message]:
        return [m for m in list(self.received) if m.get("id") == number and "method" not in m]

    def response(self, number: int | str, seconds: float = PATIENCE) -> Message:
        found: list[Message] = self.wait(lambda: self.responses(number), seconds)
        return found[0]

    def call(self, method: str, params: object = None, seconds: float = PATIENCE) -> Any:
        """The result of a request; fails on an error."""
        response = self.response(self.request(method, params), seconds)
        assert "error" not in response, response
        return response["result"]

    def error(self, method: str, params: object = None) -> int:
        """The code of the error that a request ends with."""
        code: int = self.response(self.request(method, params))["error"]["code"]
        return code

    def notifications(self, method: str) -> list[Any]:
        """Parameters of what the server has sent under that method so far."""
        return [m.get("params") for m in list(self.received) if m.get("method") == method]

    def notified(self, method: str, accept: Callable[[Any], bool] = lambda _: True) -> Any:
        return self.wait(lambda: next((p for p in self.notifications(method) if accept(p)), None))

    def exit_code(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    # ---- what an editor does -----------------------------------------------------------------------------

    def initialize(self, **params: object) -> Message:
        asked = {"processId": os.getpid(), "rootUri": None, "capabilities": {}, **params}
        result: Message = self.call("initialize", asked)
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str, language: str = "python", version: int = 1) -> None:
        item = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *edits: tuple[Place, Place, str] | str) -> None:
        """Edits are (start, end, text), or a whole text."""
        changes = [
            {"text": edit} if isinstance(edit, str) else {"range": span(edit[0], edit[1]), "text": edit[2]}
            for edit in edits
        ]
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    def ask(
        self, uri: str, place: Place, invoked: bool = False, number: int | str | None = None
    ) -> int | str:
        """Send a completion request; its id."""
        params = {
            "textDocument": {"uri": uri},
            "position": position(place),
            "context": {"triggerKind": 1 if invoked else 2},
        }
        return self.request("textDocument/inlineCompletion", params, number)

    def complete(self, uri: str, place: Place, seconds: float = PATIENCE) -> list[Message]:
        response = self.response(self.ask(uri, place), seconds)
        assert "error" not in response, response
        return response["result"] or []

    def shutdown(self) -> None:
        assert self.call("shutdown") is None
        self.notify("exit")

    # ---- threads -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout
        try:
            while (message := read_frame(self.process.stdout.read)) is not None:
                self._take(message)
        except ValueError as error:
            self.violation = f"stdout: {error}"
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        with self._changed:
            self.received.append(message)
            self._changed.notify_all()
        if "method" in message and "id" in message:
            answer = self.answers.get(message["method"])
            if answer is not NO_ANSWER:
                self.send({"id": message["id"], "result": answer})

    def _drain(self) -> None:
        assert self.process.stderr
        while data := self.process.stderr.read1(65536):  # type: ignore[attr-defined]
            self.stderr += data


NO_ANSWER = object()
"""in `answers`: the editor leaves this request unanswered"""


def read_frame(read: Callable[[int], bytes]) -> Message | None:
    """The next message; None at the end. Raises ValueError for any byte that is not of a frame."""
    length: int | None = None
    while (line := _line(read)) != b"\r\n":
        if not line and length is None:
            return None
        name, colon, value = line.removesuffix(b"\r\n").partition(b": ")
        if not (colon and line.endswith(b"\r\n")) or name not in (b"Content-Length", b"Content-Type"):
            raise ValueError(f"no header: {line[:80]!r}")
        if name == b"Content-Length":
            length = int(value)
    if length is None:
        raise ValueError("no Content-Length")
    body = b""
    while len(body) < length:
        more = read(length - len(body))
        if not more:
            raise ValueError(f"a body of {length} bytes ends after {len(body)}")
        body += more
    message = json.loads(body.decode("utf-8"))
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError("no JSON-RPC 2.0 message")
    return message


def _line(read: Callable[[int], bytes]) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = read(1)
        if not byte:
            break
        line += byte
    return line
