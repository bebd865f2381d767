"""Weights on disk: safetensors files, one or in shards. Nothing is unpickled, ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from safetensors import SafetensorError, safe_open

from copilotd.models.errors import ModelError

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


class Weight(Struct, frozen=True):
    """A matrix or vector as the checkpoint holds it: floating, or int8 with a float32 scale by row."""

    values: torch.Tensor
    scale: torch.Tensor | None = None

    def floating(self) -> torch.Tensor:
        """float32, dequantised"""
        values = self.values.float()
        return values if self.scale is None else values * self.scale[:, None]


class FileState(Struct, frozen=True):
    """What changes when a file becomes another one."""

    path: str
    bytes: int
    modified_ns: int
    changed_ns: int
    """by the system's clock, whatever time the file was given: copies and images keep the other one"""

    @classmethod
    def of(cls, file: Path) -> FileState:
        """Raises OSError."""
        found = file.stat()
        return cls(str(file.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Checkpoint:
    """The tensors of a folder by name, read one at a time."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError when files are missing or damaged."""
        self._folder = folder
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            files = _shards(index)
        elif (folder / "model.safetensors").is_file():
            files = [folder / "model.safetensors"]
        else:
            raise _no_weights(folder)
        self.states: list[FileState] = []
        """of the files, each before it was opened: what takes its place meanwhile has another one"""
        self._files: dict[str, Path] = {}
        self._opened: dict[Path, Any] = {}
        self.nbytes = 0
        """of the files"""
        for file in files:
            if not file.is_file():
                raise ModelError(f"{file} is missing, a part of the weights: fetch the model again")
            try:
                self.states.append(FileState.of(file))
                opened: Any = safe_open(file, framework="pt")
                self._opened[file] = opened
                self.nbytes += self.states[-1].bytes
                self._files |= dict.fromkeys(opened.keys(), file)
            except (SafetensorError, OSError) as error:
                raise _damaged(file, error) from None

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor, of exactly this shape. Raises ModelError."""
        if name not in self._files:
            raise ModelError(
                f"{self._folder}: the weights hold no {name}; they do not fit config.json: fetch the model again"
            )
        file = self._files[name]
        try:
            tensor: torch.Tensor = self._opened[file].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise _damaged(file, error) from None
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{file}: {name} is {list(tensor.shape)}, config.json says {list(shape)}: fetch the model again"
            )
        return tensor

    def weight(self, name: str, rows: int, columns: int) -> Weight:
        """`name`.weight, with `name`.weight_scale where it is int8."""
        values = self.read(f"{name}.weight", rows, columns)
        if values.dtype == torch.int8:
            return Weight(values, self.read(f"{name}.weight_scale", rows).float())
        if not values.dtype.is_floating_point:
            raise ModelError(f"{self._folder}: {name}.weight holds {values.dtype}: use the unquantised model")
        return Weight(values)


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(index, error) from None
    if not names or any(Path(name).name != name for name in names):
        raise ModelError(f"{index} names files outside its folder: fetch the model again")
    return [index.parent / name for name in names]


def _no_weights(folder: Path) -> ModelError:
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return ModelError(
            f"{folder / pickles[0]} is a pickle, which can run code when opened, and copilotd never does: "
            "fetch the model's safetensors files"
        )
    return ModelError(f"{folder} holds no model.safetensors: fetch the model again (copilotd pull)")


def _damaged(file: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{file} is damaged or cut short ({type(error).__name__}): delete it and fetch the model again"
    )
