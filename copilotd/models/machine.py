"""What this machine has to run models with: device, free memory, and how fast that memory is read."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from copilotd.config import DaemonSettings
from copilotd.engine.native import build
from copilotd.models import speeds
from copilotd.models.memory import Device

CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60


class Machine(Struct, frozen=True, kw_only=True):
    device: Device
    name: str
    """of the GPU, or `cpu`"""
    free_bytes: int
    """of the memory that models are loaded into, at this moment"""
    total_bytes: int
    bandwidth: float = 0.0
    """bytes a second read from that memory, the best that was seen; 0: not measured"""
    nf4: bool = False
    """NF4 has a fused kernel here"""
    compiled: bool = False
    """quantised models run by kernels compiled for this processor"""
    local: bool = True
    """torch is installed, so that models can be run at all"""


def look(settings: DaemonSettings, *, measure: bool = False) -> Machine:
    """The device that `settings` would use; imports torch. With `measure` its memory is read a few times
    (half a second), since an earlier time may have been a busy one."""
    try:
        import torch
    except ImportError:
        free, total = host_memory()
        return Machine(device="cpu", name="cpu", free_bytes=free, total_bytes=total, local=False)
    from copilotd.engine.products import nf4_is_fused

    if settings.device != "cpu" and torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        device: Device = "cuda"
        name = torch.cuda.get_device_name()
        nf4, compiled = True, False
    else:
        free, total = host_memory()
        device, name = "cpu", "cpu"
        compiled = settings.kernels == "auto" and build.usable()
        nf4 = compiled or nf4_is_fused()
    bandwidth = speeds.read().bandwidth.get(name, 0.0)
    if measure:
        bandwidth = speeds.note_bandwidth(name, _bandwidth(device))
    return Machine(
        device=device,
        name=name,
        free_bytes=free,
        total_bytes=total,
        bandwidth=bandwidth,
        nf4=nf4,
        compiled=compiled,
    )


def free_bytes(device: Device) -> int:
    """Of the memory that models are loaded into."""
    if device == "cuda":
        import torch

        free: int = torch.cuda.mem_get_info()[0]
        return free
    return host_memory()[0]


def _bandwidth(device: Device) -> float:
    import torch

    from copilotd.engine.bench import read_bandwidth

    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        return read_bandwidth(device)
    finally:
        torch.set_num_threads(threads)


def host_memory(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """(free, total) bytes of main memory: what the kernel can give without swapping, within the limits of a
    container."""
    lines = [line.split() for line in _text(meminfo).splitlines()]
    known = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdecimal()}
    total = known.get("MemTotal:") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = known.get("MemAvailable:", total // 2)
    for limit, used, cache in (
        (cgroup / "memory.max", cgroup / "memory.current", cgroup / "memory.stat"),
        (
            cgroup / "memory/memory.limit_in_bytes",
            cgroup / "memory/memory.usage_in_bytes",
            cgroup / "memory/memory.stat",
        ),
    ):
        most = _number(limit)
        if most is not None and most < min(total, _UNLIMITED):
            files = dict(line.split()[:2] for line in _text(cache).splitlines() if len(line.split()) > 1)
            reclaimable = int(files.get("inactive_file", 0))
            total = most
            free = max(0, min(free, most - (_number(used) or 0) + reclaimable))
    return free, total


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
