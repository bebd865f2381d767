"""The log says where, never what."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilotd import wire
from copilotd.daemon import log as module
from copilotd.daemon.log import log, place, start_log


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(module, "BYTES", 2000)
    hook, thread_hook = sys.excepthook, module.threading.excepthook
    start_log(tmp_path / "daemon.log")
    yield tmp_path / "daemon.log"
    sys.excepthook, module.threading.excepthook = hook, thread_hook
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.propagate = True
    log.setLevel(logging.NOTSET)


def test_an_exception_is_its_type_and_its_place_in_our_code() -> None:
    with pytest.raises(wire.FrameError) as caught:
        wire.from_front(b"secret user text")
    text = place(caught.value)
    assert text.startswith("FrameError in wire.py:")
    assert "secret" not in text


def test_the_log_rotates(log_file: Path) -> None:
    for _ in range(200):
        log.info("x" * 50)
    files = sorted(log_file.parent.glob("daemon.log*"))
    assert len(files) == 4
    assert all(file.stat().st_size <= 2000 for file in files)


def test_stray_output_is_caught_and_does_not_grow_for_ever(tmp_path: Path) -> None:
    stray = tmp_path / "daemon.out"
    stray.write_bytes(b"x" * (module.BYTES + 1))
    code = (
        "import os, pathlib, sys; from copilotd.daemon.log import catch_stray_output;"
        "catch_stray_output(pathlib.Path(sys.argv[1]));"
        "print('printed', flush=True); os.write(1, b'native '); os.system('echo child')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(stray)], capture_output=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == done.stderr == b""
    assert stray.read_text() == "printed\nnative child\n"


def test_a_disk_that_takes_no_log_ends_nobody(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from copilotd.daemon.log import catch_stray_output;"
        "catch_stray_output(pathlib.Path(sys.argv[1])); print('printed', flush=True)"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path / "missing" / "daemon.out")]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
