"""The embedded pair at a shape of Qwen2.5-Coder's."""

from __future__ import annotations

from pathlib import Path

import torch

import copilotd.models
from copilotd.models.errors import ModelError
from copilotd.models.tokenizer import TokenizerVocabulary
from faithful.shapes import QWEN
from faithful.widening import Progress, widen

EMBEDDED = Path(copilotd.models.__file__).parent / "embedded"
FLOAT32_PARAMETERS = 1_000_000_000
"""larger models are written in bfloat16 unless told otherwise: 4 bytes a parameter fill the disk"""


def usual_dtype(shape: str) -> torch.dtype:
    return torch.float32 if QWEN[shape].parameters < FLOAT32_PARAMETERS else torch.bfloat16


def widened(role: str, shape: str, folder: Path, dtype: torch.dtype, progress: Progress) -> Path:
    """Write folder/ROLE-SHAPE; `role` is target or draft. Raises DoesNotFit, ModelError, OSError."""
    source, into = EMBEDDED / role, folder / f"{role}-{shape}"
    widen(source, into, QWEN[shape], never_predicted(source), dtype, progress)
    return into


def ready(role: str, shape: str, folder: Path) -> Path:
    """folder/ROLE-SHAPE, written when it is missing or older than the embedded pair's weights."""
    into = folder / f"{role}-{shape}"
    if not is_fresh(into, EMBEDDED / role):
        widened(role, shape, folder, usual_dtype(shape), lambda name, share: None)
    return into


def is_fresh(made: Path, source: Path) -> bool:
    """Whether `made`, a file or a folder of weights, is there and no older than the weights it is made of."""
    return _written(made) >= _written(source) > 0


def _written(path: Path) -> float:
    files = path.glob("model*.safetensors") if path.is_dir() else [path] if path.is_file() else []
    return max((file.stat().st_mtime for file in files), default=0.0)


def never_predicted(folder: Path) -> int:
    """The marker that opens a prompt: nothing the model was trained to write contains it."""
    fim = TokenizerVocabulary.from_folder(folder).fim
    if fim is None:
        raise ModelError(f"{folder}: its tokenizer has no fill-in-the-middle markers")
    return fim.prefix
