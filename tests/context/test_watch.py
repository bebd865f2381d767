"""Changes come in settled batches, from the kernel or by polling."""

from __future__ import annotations

import time
from pathlib import Path

from copilotd.context.watch import LATEST_S, QUIET_S, Batch, KernelWatcher, PollingWatcher


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_storm_is_one_batch() -> None:
    clock = Clock()
    batch = Batch(clock)
    for step in range(10):
        clock.now = step * QUIET_S / 2
        batch.add(f"/w/{step % 3}")
        assert batch.take() == set()
    clock.now += QUIET_S
    assert batch.take() == {"/w/0", "/w/1", "/w/2"}
    assert batch.take() == set()


def test_a_storm_without_end_is_taken_now_and_then() -> None:
    clock = Clock()
    batch = Batch(clock)
    taken = 0
    for step in range(100):
        clock.now = step * 0.1
        batch.add("/w")
        taken += bool(batch.take())
    assert 1 <= taken <= 10 / LATEST_S + 1


def wait_for(watcher: KernelWatcher, folder: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if folder in watcher.due():
            return True
        time.sleep(0.02)
    return False


def test_the_kernel_tells_of_writes_renames_and_deletes(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    watcher = KernelWatcher()
    try:
        watcher.watch(str(folder))
        (folder / "a.py.tmp").write_text("x")
        assert wait_for(watcher, str(folder))
        (folder / "a.py.tmp").replace(folder / "a.py")
        assert wait_for(watcher, str(folder))
        (folder / "a.py").unlink()
        assert wait_for(watcher, str(folder))
        watcher.unwatch(str(folder))
        (folder / "b.py").write_text("x")
        time.sleep(QUIET_S * 3)
        assert watcher.due() == set()
    finally:
        watcher.close()


def test_a_closed_watcher_leaves_no_file_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    KernelWatcher().close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_polling_asks_for_every_folder_now_and_then() -> None:
    clock = Clock()
    watcher = PollingWatcher(clock)
    watcher.watch("/w")
    assert watcher.due() == set()
    clock.now = 10.0
    assert watcher.due() == {"/w"}
    assert watcher.due() == set()
