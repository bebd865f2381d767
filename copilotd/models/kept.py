"""Quantised products on disk, so that the next start neither reads nor quantises the whole model again.

They lie in our own cache folder, one file per layer, named by what they were made from: the weights' files
(path, length, times of change), config.json, the quantisation and the layout. What cannot be read or written
is no error: the model is quantised as if nothing had been kept. Nothing of them comes from anybody's source
text.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs
from msgspec import Struct
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from copilotd.models.checkpoint import FileState
from copilotd.models.configuration import Configuration
from copilotd.models.memory import Quantisation
from copilotd.models.quantise import Packed
from copilotd.models.workplace import flush

FORMAT = "copilotd-kept/2"
"""raised with the layout of what is kept"""
LEAST_BYTES = 200_000_000
"""smaller checkpoints are quantised faster than anybody notices"""
MOST = 4
"""models that are kept; those that were not used for longest go"""
SPARE_BYTES = 5_000_000_000
"""of the disk that stay free"""


def root(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return (Path(home) / "cache" if home else platformdirs.user_cache_path("copilotd")) / "quantised"


class Kept(Struct):
    """The products of one model."""

    folder: Path
    part: Path | None
    """where they are being written; None: they are there, or are not to be kept"""
    there: bool

    @classmethod
    def open(
        cls,
        files: Sequence[FileState],
        configuration: Configuration,
        quantisation: Quantisation,
        processor: str,
        role: str,
    ) -> Kept:
        """Of the weights in `files`, as they were before they were opened."""
        total = sum(file.bytes for file in files)
        states = sorted(files, key=lambda file: file.path)
        words = repr((FORMAT, states, configuration, quantisation, processor, role))
        folder = root() / hashlib.sha256(words.encode()).hexdigest()[:32]
        if (folder / "done").is_file():
            with suppress(OSError):  # a read-only cache
                os.utime(folder)
            return cls(folder, None, True)
        if total < LEAST_BYTES or quantisation not in ("int8", "nf4"):
            return cls(folder, None, False)
        part = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            _make_room(total)
            part.mkdir(mode=0o700, parents=True)
        except OSError:
            return cls(folder, None, False)
        return cls(folder, part, False)

    def products(
        self, name: str, shapes: Mapping[str, tuple[int, int]], pack: Callable[[], dict[str, Packed]]
    ) -> dict[str, Packed]:
        """Those of one layer, of these (outputs, inputs) by name: from the disk, else made by `pack` and kept."""
        if self.there:
            try:
                packed = _read(self.folder / f"{name}.safetensors")
                if {product: (one.outputs, one.inputs) for product, one in packed.items()} != shapes:
                    raise ValueError("another layer's")
                return packed
            except (OSError, SafetensorError, KeyError, ValueError):
                shutil.rmtree(self.folder, ignore_errors=True)
                self.there = False
        packed = pack()
        if self.part is not None:
            try:
                _write(self.part / f"{name}.safetensors", packed)
            except (OSError, SafetensorError):
                self.drop()
        return packed

    def finish(self) -> None:
        """All of them are there: from now on they are found."""
        if self.part is None:
            return
        try:
            (self.part / "done").touch(mode=0o600)
            flush(self.part)
            self.part.rename(self.folder)
            flush(self.folder.parent)
        except OSError:
            self.drop()
        self.part = None

    def drop(self) -> None:
        """Keep nothing of this load."""
        if self.part is not None:
            shutil.rmtree(self.part, ignore_errors=True)
            self.part = None


def _write(file: Path, packed: dict[str, Packed]) -> None:
    tensors = {
        f"{name}.{part}": tensor.contiguous().cpu()
        for name, product in packed.items()
        for part, tensor in product.tensors.items()
    }
    sizes = {name: f"{product.kind} {product.outputs} {product.inputs}" for name, product in packed.items()}
    save_file(tensors, file, metadata=sizes)
    file.chmod(0o600)


def _read(file: Path) -> dict[str, Packed]:
    packed = {}
    with safe_open(file, framework="pt") as opened:
        for name, words in opened.metadata().items():
            kind, outputs, inputs = words.split()
            # cloned: pages of a file are small and may be dropped by the kernel
            tensors = {
                part.removeprefix(f"{name}."): opened.get_tensor(part).clone()
                for part in opened.keys()  # noqa: SIM118 (no mapping)
                if part.startswith(f"{name}.")
            }
            packed[name] = Packed(kind, tensors, int(outputs), int(inputs))
    return packed


def _make_room(needed: int) -> None:
    """Drop what is old and what killed loads left. Raises OSError where there is no room."""
    root().mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in root().glob(".*"):
        owner = left.name.rpartition(".")[2]
        if not (owner.isdecimal() and Path(f"/proc/{owner}").exists()):
            shutil.rmtree(left, ignore_errors=True)
    kept = sorted(
        (path for path in root().iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime
    )
    for old in kept[: max(0, len(kept) - MOST + 1)]:
        shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(root()).free < needed + SPARE_BYTES:
        raise OSError("no room")
