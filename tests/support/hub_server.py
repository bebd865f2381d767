"""A small hub over real HTTP: a list of files, redirects to large-file storage, ranges; well and badly."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 16 << 10


class HubServer:
    """`files` of one repository. The knobs are read at every request."""

    def __init__(self, repository: str, files: dict[str, bytes]) -> None:
        self.repository = repository
        self.files = files
        self.requests: list[str] = []
        """`GET /path [range]`, in order"""
        self.sent = 0
        """bytes of file contents"""
        self.before: Callable[[int], None] = lambda sent: None
        """called before every block of contents, with `sent`; with an OSError the connection breaks off"""
        self.html = False
        """answer everything with a web page"""
        self.status = 0
        """answer everything with this"""
        self.hang = 0.0
        """seconds before every answer"""
        self.ranges = True
        self.spoilt: set[str] = set()
        """names whose contents have a wrong byte"""
        self.cut: set[str] = set()
        """names whose contents break off in the middle"""
        self.unknown_sizes = False
        self.page: dict[str, bytes] = {}
        """names in whose place a web page comes"""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                owner._answer(self, body=False)

            def do_GET(self) -> None:
                owner._answer(self, body=True)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def listing(self) -> dict[str, Any]:
        def sibling(name: str, content: bytes) -> dict[str, Any]:
            about: dict[str, Any] = {"rfilename": name}
            if self.unknown_sizes:
                return about
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            about |= {"size": len(content), "blobId": git}
            if name.endswith((".safetensors", ".bin")):
                sha256 = hashlib.sha256(content).hexdigest()
                about["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            return about

        return {
            "id": self.repository,
            "modelId": self.repository,
            "sha": REVISION,
            "siblings": [sibling(name, content) for name, content in self.files.items()],
        }

    def _answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        wanted = handler.headers.get("Range")
        path = handler.path.partition("?")[0]
        self.requests.append(f"{handler.command} {path}" + (f" {wanted}" if wanted else ""))
        if self.hang:
            time.sleep(self.hang)
        if self.html or self.status:
            self._plain(handler, self.status or 200, b"<html>Please log in</html>", "text/html", body)
        elif path == f"/api/models/{self.repository}/revision/main":
            self._plain(handler, 200, json.dumps(self.listing()).encode(), "application/json", body)
        elif path.startswith(f"/{self.repository}/resolve/{REVISION}/"):
            name = path.rsplit("/", 1)[-1]
            if name in self.page:
                self._plain(handler, 200, self.page[name], "text/html", body)
            elif name.endswith(".safetensors"):
                handler.send_response(302)
                handler.send_header("Location", f"{self.url}/storage/{name}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
            else:
                self._content(handler, name, wanted, body)
        elif path.startswith("/storage/"):
            self._content(handler, path.rsplit("/", 1)[-1], wanted, body)
        else:
            handler.close_connection = True
            handler.send_response(404)
            handler.send_header("X-Error-Code", "RepoNotFound")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    def _plain(
        self, handler: BaseHTTPRequestHandler, status: int, content: bytes, kind: str, body: bool
    ) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if body:
            handler.wfile.write(content)

    def _content(self, handler: BaseHTTPRequestHandler, name: str, wanted: str | None, body: bool) -> None:
        content = self.files.get(name)
        if content is None:
            handler.send_error(404)
            return
        if name in self.spoilt:
            content = bytes([content[0] ^ 1]) + content[1:]
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and self.ranges else 0
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        handler.end_headers()
        end = len(content) // 2 if name in self.cut else len(content)
        if not body:
            return
        try:
            for at in range(start, end, BLOCK):
                self.before(self.sent)
                block = content[at : min(at + BLOCK, end)]
                handler.wfile.write(block)
                self.sent += len(block)
        except OSError:
            handler.close_connection = True
        if end < len(content):
            handler.close_connection = True


@contextmanager
def hub_server(repository: str, files: dict[str, bytes]) -> Iterator[HubServer]:
    hub = HubServer(repository, files)
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()
        thread.join()
