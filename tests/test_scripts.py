"""scripts/setup refuses what it cannot use before it touches anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "scripts" / "setup"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as setup looks at, without a .venv."""
    (tmp_path / "w" / "scripts").mkdir(parents=True)
    shutil.copy(SETUP, tmp_path / "w" / "scripts" / "setup")
    return tmp_path / "w"


def setup(checkout: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [checkout / "scripts" / "setup", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not (checkout / ".venv").exists()
    return done


def test_help_helps_and_an_unknown_word_is_refused(checkout: Path) -> None:
    assert "scripts/setup dev" in setup(checkout, "--help").stdout
    done = setup(checkout, "everything")
    assert (done.returncode, "everything" in done.stderr) == (2, True)


@pytest.mark.parametrize("python", ["/nowhere/python3", "an-old-one"])
def test_the_python_that_was_named_is_used_or_refused(checkout: Path, python: str) -> None:
    old = checkout / "an-old-one"
    old.write_text("#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2\nexit 1\n")
    old.chmod(0o755)
    named = python if python.startswith("/") else str(old)
    done = setup(checkout, COPILOTD_PYTHON=named)
    assert done.returncode == 1
    assert "3.11 or newer" in done.stderr
    assert named in done.stderr
