"""What was measured on this machine when models were loaded: numbers only, in the state folder.

`auto` trusts them more than arithmetic. A file that is missing or damaged is an empty one, and one that
cannot be written is left as it is: the next choice is then by arithmetic again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import platformdirs
from msgspec import Meta, Struct, field

KEPT = 5
"""loads that are remembered; their median counts, so that a busy neighbour does no harm once"""
UNCACHED = 200_000_000
FILE = "speeds.json"

Duration: TypeAlias = Annotated[float, Meta(gt=0)]


class Measured(Struct, frozen=True, kw_only=True):
    """What one load found."""

    step_ms: Annotated[tuple[tuple[int, Duration], ...], Meta(min_length=1)]
    """(rows, milliseconds) of a target step, ascending"""
    read_bytes: Annotated[int, Meta(ge=0)]
    """of weights, by a step"""
    draft: str = ""
    draft_ms: float = 0.0
    """of a step of one row"""

    @property
    def tokens_per_s(self) -> float:
        """Written one by one, without speculation."""
        return 1e3 / self.step_ms[0][1]

    @property
    def row_share(self) -> float:
        """What one row more costs, as a share of a plain step."""
        rows, widest = self.step_ms[-1]
        return max(0.0, widest / self.step_ms[0][1] - 1) / max(1, rows - 1)


class Speeds(Struct):
    bandwidth: dict[str, float] = field(default_factory=dict)
    """bytes a second that a device reads, the best that was seen"""
    loads: dict[str, list[Measured]] = field(default_factory=dict)
    """by `target quantisation device draft`, the newest last"""

    def of(self, target: str, quantisation: str, device: str) -> Measured | None:
        """The median load, whatever its draft."""
        return _median(
            [load for name, kept in self.loads.items() if name.startswith(_key(target, quantisation, device, ""))
             for load in kept]
        )  # fmt: skip

    def draft_cost(self, target: str, quantisation: str, device: str, draft: str) -> float:
        """A draft step over a target step; 0: never measured."""
        load = _median(self.loads.get(_key(target, quantisation, device, draft), []))
        return load.draft_ms / load.step_ms[0][1] if load is not None else 0.0

    def reached(self, device: str) -> float:
        """Bytes a second that plain steps were seen to read on this device, by models that no processor's cache
        holds; 0: none was."""
        return max(
            (
                measured.read_bytes * measured.tokens_per_s
                for name, loads in self.loads.items()
                for measured in loads
                if f" {device} " in name and measured.read_bytes >= UNCACHED
            ),
            default=0.0,
        )


def _key(target: str, quantisation: str, device: str, draft: str) -> str:
    return f"{target} {quantisation} {device} {draft}"


def _median(loads: list[Measured]) -> Measured | None:
    ordered = sorted(loads, key=lambda load: load.step_ms[0][1])
    return ordered[len(ordered) // 2] if ordered else None


def path(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return (Path(home) / "state" if home else platformdirs.user_state_path("copilotd")) / FILE


def read() -> Speeds:
    file = path()
    try:
        if not file.is_file():  # a pipe would never end
            return Speeds()
        return msgspec.json.decode(file.read_bytes(), type=Speeds)
    except (OSError, msgspec.DecodeError):
        return Speeds()


def note_load(target: str, quantisation: str, device: str, measured: Measured) -> None:
    """Remember what a load measured. Never raises for a folder that cannot be written."""
    if not measured.step_ms or measured.step_ms[0][1] <= 0:
        return
    speeds = read()
    kept = speeds.loads.setdefault(_key(target, quantisation, device, measured.draft), [])
    kept.append(measured)
    del kept[:-KEPT]
    _write(speeds)


def note_bandwidth(device: str, bytes_per_s: float) -> float:
    """Remember the best; gives it."""
    speeds = read()
    best = max(bytes_per_s, speeds.bandwidth.get(device, 0.0))
    if best != speeds.bandwidth.get(device):
        speeds.bandwidth[device] = best
        _write(speeds)
    return best


def _write(speeds: Speeds) -> None:
    file = path()
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(speeds)))
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
