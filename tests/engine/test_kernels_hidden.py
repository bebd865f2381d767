"""bitsandbytes takes no code from the hub, also in commands that run models beside the daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("bitsandbytes")

PROGRAM = """
import torch
from copilotd.engine.products import pack_cuda_nf4
pack_cuda_nf4(torch.randn(64, 64))
import kernels  # afterwards it is what it was
"""


def test_the_library_is_imported_without_kernels(tmp_path: Path) -> None:
    """Its routines for the CPU stand in for a GPU's."""
    (tmp_path / "kernels.py").write_text("def get_kernel(*words, **more):\n    print('asked', *words)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "asked" not in done.stdout
