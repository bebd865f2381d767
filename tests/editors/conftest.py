"""The editors themselves: set up by the project's own scripts, cached outside the repository.

An editor that cannot be had skips its tests with the reason; COPILOTD_REQUIRE_EDITORS=1 makes that a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.neovim import Neovim
from tests.support.scripted import ROOT, ScriptedDaemon, own_folder_environment

# before own_folders takes them away
ENVIRONMENT = dict(os.environ)

PATIENT = '[session]\nmax_latency_ms = 0\nmultiline = "always"\n'
"""a busy machine makes no answer late, and the whole script is shown"""


def editor_from(script: str) -> Path:
    """Where a setup script has put its editor."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "editors" / script)], env=ENVIRONMENT, capture_output=True, text=True
    )
    if done.returncode == 0:
        return Path(done.stdout.strip())
    reason = f"scripts/editors/{script}: {' '.join(done.stderr.split()[-40:])}"
    if ENVIRONMENT.get("COPILOTD_REQUIRE_EDITORS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def neovim_binary() -> Path:
    return editor_from("neovim")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace."""
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Our folders in the test's own; `copilotd` on PATH."""
    programs = Path(sys.executable).parent
    home = tmp_path / "copilotd-home"
    return own_folder_environment(home) | {
        "PATH": f"{programs}{os.pathsep}{ENVIRONMENT['PATH']}",
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def daemon(environment: dict[str, str]) -> Iterator[Callable[..., ScriptedDaemon]]:
    """Starts the one daemon, with a scripted model."""
    with ExitStack() as stack:

        def start(**options: Any) -> ScriptedDaemon:
            home = Path(environment["COPILOTD_HOME"])
            return stack.enter_context(ScriptedDaemon(home, **({"settings": PATIENT} | options)))

        yield start


@pytest.fixture
def neovim(
    neovim_binary: Path, environment: dict[str, str], folder: Path, daemon: object
) -> Iterator[Callable[..., Neovim]]:
    """Starts a Neovim in the workspace. It leaves before the daemon does, or its front would start another."""
    with ExitStack() as stack:

        def start(**options: Any) -> Neovim:
            return stack.enter_context(Neovim(neovim_binary, environment, folder, **options))

        yield start
