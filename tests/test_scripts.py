"""scripts/setup refuses what it cannot use before it touches anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASE = getattr(sys, "_base_executable", sys.executable)
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


def test_pip_is_found_from_within_an_environment_that_has_none(checkout: Path, tmp_path: Path) -> None:
    """As when .venv is active: setup itself makes it without pip."""
    bare = tmp_path / "bare"
    subprocess.run([BASE, "-m", "venv", "--without-pip", bare], check=True)
    done = setup(checkout, PATH=f"{bare / 'bin'}:{os.defpath}")
    assert "needs pip" not in done.stderr
    assert "pyproject.toml" in done.stderr  # the next thing it looks for, which this checkout lacks
