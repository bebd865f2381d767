"""Every test has its own folders, and leaves no process of ours behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# more torch threads than free cores collapse in its barriers; set before anything imports torch
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings, state, cache and sockets of the test, and of every process it starts, lie in its own folder."""
    home = tmp_path / "copilotd-home"
    for name in [name for name in os.environ if name.startswith("COPILOTD_")]:
        monkeypatch.delenv(name)
    for name in ("CACHE", "CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COPILOTD_HOME", str(home))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield
    if home.exists():
        left = list(processes_of(home))
        for process in left:
            os.kill(process, signal.SIGKILL)
        assert not left, f"processes left behind: {left}"


def processes_of(home: Path) -> Iterator[int]:
    """Processes that were started with this COPILOTD_HOME, but for the test itself."""
    mark = f"COPILOTD_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            zombie = b") Z " in (folder / "stat").read_bytes()
        except OSError:
            continue
        if mark in environment and not zombie and int(folder.name) != os.getpid():
            yield int(folder.name)
