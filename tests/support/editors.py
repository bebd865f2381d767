"""The editors that tests need: set up by the project's own scripts, cached outside the repository.

An editor that cannot be had skips its tests with the reason; COPILOTD_REQUIRE_EDITORS=1 makes that a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.support.scripted import ScriptedDaemon

ROOT = Path(__file__).resolve().parents[2]
# before own_folders takes them away
ENVIRONMENT = dict(os.environ)

REQUIRED = ENVIRONMENT.get("COPILOTD_REQUIRE_EDITORS") == "1"
CACHE = Path(
    ENVIRONMENT.get("COPILOTD_EDITORS")
    or Path(ENVIRONMENT.get("XDG_CACHE_HOME") or Path(ENVIRONMENT["HOME"]) / ".cache") / "copilotd-editors"
)


def set_up(editor: str) -> Path:
    """Where the editor's setup script has put it."""
    script = ROOT / "scripts" / "editors" / editor
    done = subprocess.run([str(script)], env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode == 0:
        return Path(done.stdout.strip())
    reason = f"scripts/editors/{editor}: {' '.join(done.stderr.split()[-40:])}"
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


def cached(editor: str) -> Path:
    """The same for an editor so large that it is fetched only when it is asked for."""
    if not REQUIRED and not (CACHE / editor).exists():
        pytest.skip(f"scripts/editors/{editor} was not run (it fetches some 900 MB)")
    return set_up(editor)


def requests(daemon: ScriptedDaemon) -> dict[str, Any]:
    """What the daemon counts of its requests."""
    found: dict[str, Any] = status(daemon.env)["requests"]
    return found


def status(env: Mapping[str, str]) -> dict[str, Any]:
    """`copilotd status --json`"""
    line = [sys.executable, "-P", "-m", "copilotd", "status", "--json"]
    done = subprocess.run(line, env=env, capture_output=True, check=True, timeout=120)
    found: dict[str, Any] = json.decode(done.stdout)
    return found
