"""The lock and the socket of the one daemon."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from copilotd.daemon import address as module
from copilotd.daemon.address import Address, AlreadyRunning
from copilotd.daemon.attempts import Attempts
from copilotd.daemon.lock import daemon_lock, recorded
from copilotd.daemon.platform import Unusable


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"COPILOTD_HOME": str(tmp_path)}


def is_closed(listener: socket.socket) -> bool:
    return listener.fileno() == -1


def never(path: Path) -> bool:
    raise AssertionError("asked although nobody holds the lock")


@pytest.mark.parametrize("text", ["", "1\n", "rubbish\n\0\xff", f"{os.getppid()}\n/nowhere.sock\n"])
def test_what_the_lock_file_says_does_not_matter(environ: dict[str, str], text: str) -> None:
    """An empty pid file, a foreign live pid, rubbish: only the kernel's lock counts."""
    daemon_lock(environ).path.write_text(text)
    address = Address.claim(never, environ)
    assert recorded(daemon_lock(environ)) == (os.getpid(), address.path)
    address.release()
    assert not address.path.exists()


def test_the_second_names_the_first(environ: dict[str, str]) -> None:
    first = Address.claim(never, environ)
    inode = first.path.stat().st_ino
    with pytest.raises(AlreadyRunning, match=str(os.getpid())) as running:
        Address.claim(lambda path: path == first.path, environ)
    assert running.value.path == first.path
    assert first.path.stat().st_ino == inode
    first.release()


def test_one_that_neither_answers_nor_ends_is_named(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    first = Address.claim(never, environ)
    with pytest.raises(Unusable, match=f"pid {os.getpid()}"):
        Address.claim(lambda path: False, environ)
    first.release()


def test_an_ending_predecessor_is_waited_for(environ: dict[str, str]) -> None:
    first = Address.claim(never, environ)

    def leaves_when_asked(path: Path) -> bool:
        first.release()
        return False

    second = Address.claim(leaves_when_asked, environ)
    assert second.owned()
    second.release()


def test_lost_files_are_noticed(environ: dict[str, str]) -> None:
    address = Address.claim(never, environ)
    assert address.owned()
    assert address.reachable()
    address.path.unlink()
    assert not address.reachable()
    first = address.listener
    address.renew()
    assert address.reachable()
    assert is_closed(first)
    daemon_lock(environ).path.unlink()
    assert not address.owned()
    address.release()
    assert is_closed(address.listener)


def test_starts_that_come_to_nothing_are_spread(environ: dict[str, str]) -> None:
    attempts = Attempts(environ)
    for _ in range(3):
        assert attempts.wait_s() <= 0
        attempts.add()
    waits = []
    for _ in range(12):
        waits.append(round(attempts.wait_s()))
        attempts.add()
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    Attempts(environ).forget()
    assert attempts.wait_s() <= 0
