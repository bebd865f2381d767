"""Editors, daemons and workspaces of a test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.editors import ENVIRONMENT, ROOT, cached, set_up
from tests.support.neovim import Neovim
from tests.support.scripted import ScriptedDaemon, own_folder_environment
from tests.support.vscode import VSCode

PATIENT = '[session]\nmax_latency_ms = 0\nmultiline = "always"\n'
"""a busy machine makes no answer late, and the whole script is shown"""


@pytest.fixture(scope="session")
def neovim_binary() -> Path:
    return set_up("neovim")


@pytest.fixture(scope="session")
def released(neovim_binary: Path) -> None:
    """Skips what the development build from the package index does not do yet."""
    version = subprocess.check_output([str(neovim_binary), "--version"], text=True).partition("\n")[0]
    if "-dev" in version:
        pytest.skip(
            f"{version} is a development build: it misplaces expired ghost text and loses new buffers"
        )


@pytest.fixture(scope="session")
def vscode_home() -> Path:
    return cached("vscode")


@pytest.fixture(scope="session")
def vsix(vscode_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged extension."""
    file = tmp_path_factory.mktemp("vsix") / "copilotd.vsix"
    line = [str(ROOT / "scripts" / "editors" / "extension"), str(file)]
    subprocess.run(line, env=ENVIRONMENT, check=True, capture_output=True)
    return file


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


@pytest.fixture
def vscode(
    vscode_home: Path, vsix: Path, environment: dict[str, str], folder: Path, daemon: object
) -> Iterator[Callable[..., VSCode]]:
    """Starts a VS Code in the workspace, with the packaged extension."""
    with ExitStack() as stack:

        def start(**options: Any) -> VSCode:
            return stack.enter_context(VSCode(vscode_home, vsix, environment, folder, **options))

        yield start
