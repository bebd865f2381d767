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


def never_predicted(folder: Path) -> int:
    """The marker that opens a prompt: nothing the model was trained to write contains it."""
    fim = TokenizerVocabulary.from_folder(folder).fim
    if fim is None:
        raise ModelError(f"{folder}: its tokenizer has no fill-in-the-middle markers")
    return fim.prefix
