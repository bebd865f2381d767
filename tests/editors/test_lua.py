"""The plugin's Lua, as its linter and its formatter want it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.editors import cached
from tests.support.neovim import PLUGIN
from tests.support.scripted import ROOT


def test_luacheck() -> None:
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        pytest.skip("luacheck is not installed (Debian: apt-get install lua-check)")
    line = [luacheck, "--no-cache", "--no-color", "--config", str(PLUGIN / ".luacheckrc"), str(PLUGIN)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_stylua() -> None:
    home = cached("vscode")
    node = home / "node_modules" / "node" / "bin" / "node"
    line = [node, ROOT / "scripts" / "editors" / "stylua.mjs", home / "node_modules", "--check"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
