"""Processor, GPU, and the kernels that can be used on them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from copilotd.config import DaemonSettings
from copilotd.daemon.checks.finding import Finding, failed, ok, skipped, warning
from copilotd.daemon.checks.program import installed
from copilotd.daemon.platform import on_battery
from copilotd.daemon.status import Status
from copilotd.engine.native import build
from copilotd.engine.native.library import loaded

FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
"""what the products of models are written for, as Linux calls it"""
CPUINFO = Path("/proc/cpuinfo")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER = Path("/proc/driver/nvidia/version")
FASTER = "with kernels compiled for this processor, a step is three to four times as fast (seen with AVX2)"


def check_processor(cpuinfo: Path = CPUINFO) -> Iterator[Finding]:
    name, flags = read_cpuinfo(cpuinfo)
    found = [feature for feature in FEATURES if feature in flags]
    if not flags:
        yield skipped("processor", f"{sys.platform}: its features are not known")
    elif "avx2" not in flags and "asimd" not in flags:
        yield warning(
            "processor",
            f"{name}: without AVX2",
            "Models run several times slower here: use the starter or the embedded pair, or a team's server",
        )
    else:
        yield ok("processor", f"{name}: {', '.join(found) or 'no feature that helps'}")


def read_cpuinfo(file: Path) -> tuple[str, frozenset[str]]:
    """The processor's name and features; "" and nothing where the system does not tell."""
    try:
        text = file.read_text()
    except OSError:
        return "", frozenset()
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return name[1] if name else "processor", frozenset(flags[1].split() if flags else ())


def check_threads(settings: DaemonSettings, quota_file: Path = QUOTA) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    chosen = f"threads = {settings.threads}" if settings.threads else "threads are chosen by measurement"
    quota = cpu_quota(quota_file)
    if quota is not None and quota < cores and settings.threads != max(1, int(quota)):
        yield warning(
            "cores",
            f"{cores}, but this container may use {quota:g} of them: threads wait for each other",
            f"Set threads = {max(1, int(quota))} under [daemon] in the settings, then `copilotd reload`",
        )
    elif settings.threads > cores:
        yield warning(
            "cores",
            f"{cores}, and {chosen}: threads wait for each other",
            f"Set threads to 0 (by measurement) or at most {cores}, then `copilotd reload`",
        )
    else:
        yield ok("cores", f"{cores}; {chosen}")
    if on_battery():
        yield ok("power", "on battery: no work ahead of what is typed")


def cpu_quota(file: Path) -> float | None:
    """Cores' worth of time that a container may use; None: as many as there are."""
    try:
        most, period = file.read_text().split()
        return int(most) / int(period)
    except (OSError, ValueError):
        return None


def check_device(
    settings: DaemonSettings, driver_file: Path = DRIVER, status: Status | None = None
) -> Iterator[Finding]:
    """The device that models run on, and why not a GPU that is there; on a CPU, by which kernels. Imports torch."""
    driver = _driver(driver_file)
    if not installed("torch"):
        yield skipped("device", f"without torch nobody can say; GPU driver: {driver or 'none'}")
        return
    import torch

    if torch.cuda.is_available() and settings.device != "cpu":
        free, total = torch.cuda.mem_get_info()
        yield ok(
            "device",
            f"{torch.cuda.get_device_name()}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free, "
            f"driver {driver or 'unknown'}, CUDA {torch.version.cuda}",
        )
        return
    if settings.device == "cuda":
        yield failed("device", 'device = "cuda", but torch sees no GPU', _no_gpu(driver))
        return
    if driver and settings.device == "auto":
        yield warning(
            "device", f"cpu, though a GPU's driver ({driver}) is here: torch sees no GPU", _no_gpu(driver)
        )
    else:
        why = ' (device = "cpu" in the settings)' if settings.device == "cpu" and driver else ""
        yield ok("device", f"cpu{why}; torch uses {torch.backends.cpu.get_cpu_capability()}")
    yield check_kernels(settings, status)
    if settings.kernels == "torch" or not build.usable():
        yield _nf4()


def check_kernels(settings: DaemonSettings, status: Status | None) -> Finding:
    """Whether this processor's own are there, or will be. Nothing is compiled for it."""
    if settings.kernels == "torch":
        return ok("kernels", 'torch\'s: kernels = "torch" in the settings')
    try:
        library, compiler = build.found()
        if not compiler:
            loaded(library)
    except build.NoKernels as problem:
        return skipped("kernels", f"torch's: {problem}")
    except build.CannotBuild as problem:
        return warning("kernels", f"torch's: {problem}", f"That done, `copilotd reload`: {FASTER}")
    if not compiler:
        return ok("kernels", f"compiled for this processor, {library}")
    if status is not None and status.target and status.device == "cpu":  # a load has tried
        return warning(
            "kernels",
            f"not compiled by {compiler}, though models are loaded",
            f"`{sys.executable} -Pm copilotd.engine.native.build` tries again and says what is wrong; "
            f"then `copilotd reload`: {FASTER}",
        )
    return ok("kernels", f"will be compiled for this processor at the first start, by {compiler}")


def _no_gpu(driver: str) -> str:
    import torch

    if torch.version.cuda is None:
        return (
            "This torch is the CPU build: install PyPI's own (python3 -m pip install --force-reinstall torch), "
            "then `copilotd stop`"
        )
    if not driver:
        return 'Install the GPU\'s driver, or set device to "auto" or "cpu"'
    return f"Let nvidia-smi say what is wrong; the driver must be new enough for CUDA {torch.version.cuda}"


def _driver(file: Path) -> str:
    try:
        found = re.search(r"\b(\d{3}\.[\d.]+)\b", file.read_text())
    except OSError:
        return ""
    return found[1] if found else "of unknown version"


def _nf4() -> Finding:
    """Which of bitsandbytes' ways NF4 takes on this processor."""
    from copilotd.engine.products import nf4_is_fused

    if nf4_is_fused():
        return ok("nf4", "bitsandbytes' fused kernel (AVX512_BF16)")
    _, flags = read_cpuinfo(CPUINFO)
    why = "this bitsandbytes lacks it" if "avx512_bf16" in flags else "the processor lacks AVX512_BF16"
    return ok("nf4", f"no fused kernel ({why}): int8 is used, which is faster here")
