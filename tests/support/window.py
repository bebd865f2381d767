"""An editor window on the real `copilotd --stdio`, before a daemon that the test plays itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from copilotd import wire
from tests.support.fake_daemon import Asked, FakeDaemon, nothing
from tests.support.lsp_driver import LspProcess, Place


class Window:
    def __init__(self, folder: Path, answer: Callable[[Asked], wire.Answer | None] = nothing) -> None:
        socket = Path("/tmp") / f"copilotd-test-{os.getpid()}-{abs(hash(folder)) % 10**9}.sock"
        self.daemon = FakeDaemon(socket, answer)
        self.folder = folder
        self.env = {**os.environ, "COPILOTD_SOCKET": str(socket)}
        self._editors: list[LspProcess] = []

    def __enter__(self) -> Window:
        self.daemon.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for editor in self._editors:
                editor.__exit__(kind, error, trace)
        finally:
            self.daemon.__exit__(kind, error, trace)

    def editor(
        self, start: bool = True, initialize: dict[str, Any] | None = None, **options: Any
    ) -> LspProcess:
        """A front; with `start` it is initialized and connected."""
        editor = LspProcess(self.env, cwd=self.folder, **options)
        self._editors.append(editor)
        if start:
            connections = self.daemon.connections
            editor.initialize(**(initialize or {}))
            self.daemon.wait(lambda: self.daemon.connections > connections)
        return editor

    def seen(self, editor: LspProcess, uri: str, place: Place) -> tuple[str, str]:
        """Text before and after the cursor, as the daemon has them for a completion there."""
        before = len(self.daemon.asked)
        editor.complete(uri, place)
        asked = self.daemon.asked[before]
        return asked.prefix, asked.suffix
