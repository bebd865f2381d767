"""The extension as it is written and packaged; what it does in the editor is in test_vscode.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.editors import ENVIRONMENT, cached
from tests.support.scripted import ROOT

SCRIPTS = ROOT / "scripts" / "editors"
MANIFEST = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text())
PROPOSED = (
    "handleDidShowCompletionItem",
    "handleDidPartiallyAcceptCompletionItem",
    "handleDidRejectCompletionItem",
    "handleEndOfLifetime",
    "isInlineEdit",
    "InlineCompletionDisplayLocation",
    "enabledApiProposals",
)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    line = [str(word) for word in words]
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_settings_are_those_of_the_session() -> None:
    run(sys.executable, SCRIPTS / "settings", "--check")


def test_the_manifest_keeps_to_what_is_safe() -> None:
    assert "enabledApiProposals" not in MANIFEST
    assert MANIFEST["capabilities"]["untrustedWorkspaces"]["supported"] == "limited"
    assert MANIFEST["capabilities"]["virtualWorkspaces"]["supported"] is False
    assert MANIFEST["extensionKind"] == ["workspace"]
    assert MANIFEST["contributes"]["configuration"]["properties"]["copilotd.path"]["scope"] == "machine"


def test_types_eslint_and_unit_tests() -> None:
    cached("vscode")
    run(SCRIPTS / "extension", "check")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The .vsix and what was said while it was made."""
    cached("vscode")
    file = tmp_path_factory.mktemp("vsix") / "copilotd.vsix"
    done = run(SCRIPTS / "extension", file)
    return file, done.stdout + done.stderr


def test_it_is_packaged_without_warnings(package: tuple[Path, str]) -> None:
    assert "WARNING" not in package[1]
    names = zipfile.ZipFile(package[0]).namelist()
    assert sorted(name for name in names if name.startswith("extension/")) == [
        "extension/LICENSE.txt",
        "extension/dist/extension.js",
        "extension/package.json",
        "extension/readme.md",
    ]


def test_the_bundle_is_small_and_uses_no_proposed_api(package: tuple[Path, str]) -> None:
    bundle = zipfile.ZipFile(package[0]).read("extension/dist/extension.js")
    assert len(bundle) < 500_000
    text = bundle.decode()
    assert not [name for name in PROPOSED if re.search(rf"\b{name}\b", text)]
