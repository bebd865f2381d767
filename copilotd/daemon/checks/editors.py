"""Editors on this machine, and whether they find copilotd. Of theirs only Neovim's `--version` is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from copilotd.daemon import platform
from copilotd.daemon.checks.finding import Finding, ok, skipped, warning

NEOVIM = (0, 12)
VERSION_S = 10.0
CODES = {
    "VS Code": ("code", ".vscode/extensions"),
    "VS Code Insiders": ("code-insiders", ".vscode-insiders/extensions"),
    "VS Code Server": ("", ".vscode-server/extensions"),
    "VSCodium": ("codium", ".vscode-oss/extensions"),
    "code-server": ("code-server", ".local/share/code-server/extensions"),
    "Cursor": ("cursor", ".cursor/extensions"),
}
"""program ("" where it is not on PATH) and folder of extensions, below the home folder"""


def check_path(environ: dict[str, str] | None = None) -> Iterator[Finding]:
    """Whether editors that look on PATH start this very program."""
    found = on_path("copilotd", environ)
    own = Path(sys.executable).parent / "copilotd"
    if found is None:
        yield warning(
            "path",
            "copilotd is not on PATH",
            f"Link it into a folder that is: ln -s {own} ~/.local/bin/ (or name it in the editor's settings)",
        )
    elif own.exists() and found.resolve() != own.resolve():
        yield warning(
            "path",
            f"{found} is another copilotd than this one ({own})",
            "Editors start the first: remove one, or name the right one in the editors' settings",
        )
    else:
        yield ok("path", str(found))


def on_path(name: str, environ: dict[str, str] | None = None) -> Path | None:
    """A program, never one that a relative entry finds in the folder one stands in."""
    entries = (os.environ if environ is None else environ).get("PATH", "").split(os.pathsep)
    found = shutil.which(name, path=os.pathsep.join(entry for entry in entries if Path(entry).is_absolute()))
    return Path(found) if found else None


def check_editors(home: Path | None = None, environ: dict[str, str] | None = None) -> Iterator[Finding]:
    home = home or Path.home()
    found = [*_neovim(environ), *_codes(home, environ)]
    yield from found
    if not found:
        yield skipped(
            "editors", "neither Neovim nor VS Code is here; any editor with LSP inline completion can be used"
        )


def _neovim(environ: dict[str, str] | None) -> Iterator[Finding]:
    program = on_path("nvim", environ)
    if program is None:
        return
    version = _neovim_version(program)
    if version is None:
        yield warning("Neovim", f"{program} does not say its version", "Run `nvim --version` to see why")
    elif version < NEOVIM:
        yield warning(
            "Neovim",
            f"{'.'.join(map(str, version))} at {program}: ghost text needs {'.'.join(map(str, NEOVIM))} or newer",
            "Install a newer one: https://github.com/neovim/neovim/releases",
        )
    else:
        yield ok(
            "Neovim", f"{'.'.join(map(str, version))} at {program}; :checkhealth copilotd looks at its plugin"
        )


def _neovim_version(program: Path) -> tuple[int, ...] | None:
    folder = platform.state_folder()
    try:
        done = subprocess.run(
            [str(program), "--version"],
            cwd=folder if folder.is_dir() else "/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"NVIM v(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


class Manifest(Struct):
    version: str = ""


def _codes(home: Path, environ: dict[str, str] | None) -> Iterator[Finding]:
    for name, (program, place) in CODES.items():
        folder = home / place
        path = on_path(program, environ) if program else None
        if path is None and not folder.is_dir():
            continue
        if version := _extension(folder):
            yield ok(name, f"extension copilotd {version} in {folder}")
        else:
            yield warning(
                name,
                f"{path or folder}: the extension is not installed",
                f"{program if path else 'code'} --install-extension copilotd.vsix (README, VS Code)",
            )


def _extension(folder: Path) -> str:
    """The version of our extension among the installed ones; "" if it is not there."""
    for manifest in sorted(folder.glob("copilotd.copilotd-*/package.json"), reverse=True):
        try:
            return msgspec.json.decode(manifest.read_bytes(), type=Manifest).version
        except (OSError, msgspec.DecodeError):
            continue
    return ""
