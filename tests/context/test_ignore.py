"""git's own verdicts against ours, on trees of nested rules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from copilotd.context.secrets import Secrets
from copilotd.context.walk import Walk

RULES = {
    ".gitignore": "*.log\n!keep.log\n/build/\ndoc/*.txt\n**/deep/secret\\ file\n# comment\nfoo/\n\n*.tmp \n!important/\n[z-a]\n",
    "sub/.gitignore": "!b.log\nlocal\n/only-here\n",
    "sub/inner/.gitignore": "*\n!.gitignore\n!kept.py\n",
}
FILES = [
    "a.log", "keep.log", "build/x.py", "sub/build/x.py", "doc/a.txt", "doc/in/a.txt", "x/deep/secret file",
    "foo/a.py", "foo", "sub/a.log", "sub/b.log", "sub/local/x.py", "sub/only-here", "sub/t/only-here",
    "sub/inner/kept.py", "sub/inner/lost.py", "sub/inner/deeper/kept.py", "x.tmp", "plain.py", "excluded.py", "a/é.log",
    "global.bak",
]  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "git").mkdir(parents=True)
    (home / "git" / "ignore").write_text("*.bak\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    root = tmp_path / "w"
    for path, text in RULES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in FILES:
        if (root / path).is_dir() or any((root / parent).is_file() for parent in Path(path).parents):
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".git" / "info" / "exclude").write_text("excluded.py\n")
    return root


def git_says(root: Path) -> set[str]:
    out = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
        env=os.environ | {"HOME": str(root)},
    ).stdout
    return {name for name in out.decode().split("\0") if name}


def walked(root: Path) -> set[str]:
    return {found.relative for found in Walk(root, Secrets()).files()}


def test_the_walk_keeps_what_git_keeps(tree: Path) -> None:
    assert walked(tree) == git_says(tree)
    assert "sub/b.log" in walked(tree)
    assert "sub/a.log" not in walked(tree)


def test_a_folder_inside_a_repository_obeys_the_rules_above(tree: Path) -> None:
    assert walked(tree / "sub") == {
        name.removeprefix("sub/") for name in git_says(tree) if name.startswith("sub/")
    }


def test_outside_a_repository_custom_says_what_is_generated(tmp_path: Path) -> None:
    """Below a folder of such a name too: only what lies in the workspace is looked at."""
    root = tmp_path / "build" / "w"
    for path in ("build/a.py", "sub/dist/a.py", "src/a.py", "target.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
    assert walked(root) == {"src/a.py", "target.py"}
    (root / ".copilotdignore").write_text("!build/\n")
    assert walked(root) == {".copilotdignore", "build/a.py", "src/a.py", "target.py"}


def test_a_nested_repository_has_rules_of_its_own(tree: Path) -> None:
    nested = tree / "sub" / "nested"
    nested.mkdir()
    subprocess.run(["git", "init", "-q", str(nested)], check=True)
    (nested / "own.log").write_text("x\n")
    assert "sub/nested/own.log" in walked(tree)


def test_copilotdignore_counts_after_gitignore(tree: Path) -> None:
    (tree / ".copilotdignore").write_text("plain.py\n!a.log\n")
    assert "plain.py" not in walked(tree)
    assert "a.log" in walked(tree)
