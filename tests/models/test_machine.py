"""Free memory as the kernel and a container's limits say it; what was measured is kept as numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from copilotd.config import DaemonSettings
from copilotd.engine.native import build
from copilotd.models import machine, speeds
from copilotd.models.machine import host_memory, look
from copilotd.models.speeds import Measured

GIB = 1 << 30
MEMINFO = (
    "MemTotal:       16777216 kB\nMemFree:  1048576 kB\nMemAvailable:   8388608 kB\nHugePages_Total: 0\n"
)


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text(MEMINFO)
    return file


def test_available_is_free(tmp_path: Path, meminfo: Path) -> None:
    assert host_memory(tmp_path / "none", meminfo) == (8 * GIB, 16 * GIB)


@pytest.mark.parametrize(
    ("names", "limit", "expected"),
    [
        (("memory.max", "memory.current", "memory.stat"), str(4 * GIB), (2 * GIB, 4 * GIB)),
        (("memory.max", "memory.current", "memory.stat"), "max", (8 * GIB, 16 * GIB)),
        (
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
            str(4 * GIB),
            (2 * GIB, 4 * GIB),
        ),
        (
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
            "9223372036854771712",
            (8 * GIB, 16 * GIB),
        ),
    ],
)
def test_a_containers_limit_counts(
    tmp_path: Path, meminfo: Path, names: tuple[str, str, str], limit: str, expected: tuple[int, int]
) -> None:
    (tmp_path / "cgroup/memory").mkdir(parents=True)
    for name, text in zip(names, (limit, str(3 * GIB), f"anon 5\ninactive_file {GIB}\n"), strict=True):
        (tmp_path / "cgroup" / name).write_text(text)
    assert host_memory(tmp_path / "cgroup", meminfo) == expected


def test_a_system_without_these_files(tmp_path: Path) -> None:
    free, total = host_memory(tmp_path, tmp_path / "none")
    assert 0 < free < total


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(DaemonSettings(device="cpu"))
    assert (found.device, found.name, found.local, found.bandwidth) == ("cpu", "cpu", True, 0.0)
    assert 0 < found.free_bytes <= found.total_bytes
    assert look(DaemonSettings(device="cpu"), measure=True).bandwidth > 1e8
    best = look(DaemonSettings(device="cpu")).bandwidth
    assert best > 1e8
    monkeypatch.setattr(machine, "_bandwidth", lambda device: 1.0)  # a busy moment
    assert look(DaemonSettings(device="cpu"), measure=True).bandwidth == best


@pytest.mark.parametrize("there", [True, False])
def test_compiled_kernels_bring_nf4(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.setattr(build, "usable", lambda: there)
    monkeypatch.setattr("copilotd.engine.products.nf4_is_fused", lambda: False)
    found = look(DaemonSettings(device="cpu"))
    assert (found.compiled, found.nf4) == (there, there)
    found = look(DaemonSettings(device="cpu", kernels="torch"))
    assert (found.compiled, found.nf4) == (False, False)


# ---- what was measured -------------------------------------------------------------------------------------


def load(ms: float, draft: str = "") -> Measured:
    return Measured(step_ms=((1, ms), (5, 2 * ms)), read_bytes=1000, draft=draft, draft_ms=ms / 4)


def test_the_median_load_counts_and_old_ones_fade() -> None:
    for ms in (10.0, 11.0, 500.0):
        speeds.note_load("m", "nf4", "cpu", load(ms))
    found = speeds.read().of("m", "nf4", "cpu")
    assert found is not None
    assert found.tokens_per_s == pytest.approx(1000 / 11)
    assert found.row_share == pytest.approx(0.25)
    for _ in range(speeds.KEPT):
        speeds.note_load("m", "nf4", "cpu", load(20.0))
    found = speeds.read().of("m", "nf4", "cpu")
    assert found is not None
    assert found.tokens_per_s == 50.0
    assert speeds.read().of("m", "int8", "cpu") is None
    assert speeds.read().reached("cpu") == 0.0  # a thousand bytes lie in the processor's cache
    large = Measured(step_ms=((1, 20.0),), read_bytes=speeds.UNCACHED)
    speeds.note_load("large", "nf4", "cpu", large)
    assert speeds.read().reached("cpu") == pytest.approx(50 * speeds.UNCACHED)
    assert speeds.read().reached("cuda") == 0.0


def test_a_drafts_cost_is_remembered_when_it_is_left_out() -> None:
    speeds.note_load("m", "nf4", "cpu", load(20.0, "d"))
    for _ in range(2 * speeds.KEPT):
        speeds.note_load("m", "nf4", "cpu", load(20.0))
    assert speeds.read().draft_cost("m", "nf4", "cpu", "d") == 0.25
    assert speeds.read().draft_cost("m", "nf4", "cpu", "other") == 0.0


STEPLESS = '{"loads": {"m nf4 cpu ": [{"step_ms": [], "read_bytes": 1}]}}'
TIMELESS = '{"loads": {"m nf4 cpu ": [{"step_ms": [[1, 0.0]], "read_bytes": 1}]}}'


@pytest.mark.parametrize("content", ["", "{", "[]", '{"loads": 7}', STEPLESS, TIMELESS])
def test_a_damaged_file_is_an_empty_one(content: str) -> None:
    speeds.path().parent.mkdir(parents=True)
    speeds.path().write_text(content)
    assert speeds.read() == speeds.Speeds()
    speeds.note_load("m", "nf4", "cpu", load(20.0))
    assert speeds.read().of("m", "nf4", "cpu") is not None
    assert speeds.path().stat().st_mode & 0o777 == 0o600
    assert [path.name for path in speeds.path().parent.iterdir()] == ["speeds.json"]


def test_a_folder_that_cannot_be_written_is_no_error() -> None:
    speeds.path().parent.parent.mkdir(parents=True)
    speeds.path().parent.write_text("a file in its place")
    speeds.note_load("m", "nf4", "cpu", load(20.0))
    assert speeds.note_bandwidth("cpu", 7.0) == 7.0
    speeds.note_load("m", "nf4", "cpu", Measured(step_ms=(), read_bytes=0))  # nothing was measured


def test_a_pipe_in_its_place_is_not_waited_for() -> None:
    speeds.path().parent.mkdir(parents=True)
    os.mkfifo(speeds.path())
    assert speeds.read() == speeds.Speeds()
