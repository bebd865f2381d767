"""What a walk reads, and what it leaves alone (CB-H22, CB-H25)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from copilotd.context.ignore import Ignore
from copilotd.context.secrets import Secrets
from copilotd.context.walk import MAX_BYTES, MAX_DEPTH, Walk

PEM = "-----BEGIN RSA PRIVATE KEY-----\ncanary-pem\n-----END RSA PRIVATE KEY-----\n"


def fill(root: Path, files: dict[str, bytes | str]) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def texts(walk: Walk) -> tuple[dict[str, str], Counter[str]]:
    """What may be read, and why the rest may not."""
    read, skipped = {}, Counter[str]()
    pending = [(str(walk.root), Ignore.root(walk.root))]
    while pending:
        listing = walk.list(*pending.pop())
        pending.extend(listing.folders)
        skipped.update(listing.skipped.values())
        for found in listing.files:
            text, why = walk.read(found)
            if text is None:
                skipped[why] += 1
            else:
                read[found.relative] = text
    assert {found.relative for found in walk.files()} >= set(read)
    return read, skipped


def test_h22_secret_files_are_never_read(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "w",
        {
            ".env": "PAY_KEY=canary-env-1\n",
            ".env.local": "PAY_KEY=canary-env-2\n",
            ".env.example": "PAY_KEY=\n",
            "deploy/prod.env": "PAY_KEY=canary-env-3\n",
            ".dev.vars": "PAY_KEY=canary-vars\n",
            "certs/server.pem": PEM,
            "config/notes.txt": PEM,
            "keys/id_ed25519": "canary-ssh\n",
            "KEYS/ID_RSA": "canary-upper\n",
            ".npmrc": "//reg/:_authToken=canary-npm\n",
            ".netrc": "machine h password canary-netrc\n",
            ".git/config": "url = https://u:canary-git@h/r\n",
            "ignored/local.py": 'PAY_KEY = "canary-ignored"\n',
            ".gitignore": "ignored/\n",
            "settings.py": 'import os\nPAY_KEY = os.environ["PAY_KEY"]  # plain-marker\n',
        },
    )
    read, skipped = texts(Walk(root, Secrets()))
    assert "canary-" not in "".join(read.values())
    assert set(read) == {".env.example", ".gitignore", "settings.py"}
    assert skipped["secret"] == 10
    assert skipped["ignored"] == 2  # .git and ignored/


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("home/me/.kube/config", True),
        ("dotfiles/.docker/config.json", True),
        (".cargo/credentials.toml", True),
        (".config/gh/hosts.yml", True),
        ("deploy/.env-production", True),
        ("deploy/prod.env.local", True),
        (".aws/credentials", True),
        (".terraform.d/credentials.tfrc.json", True),
        ("src/credentials/store.py", False),
        ("src/environment.ts", False),
        ("config.json", False),
        ("keys/id_ed25519.pub", False),
        ("vite-env.d.ts", False),
    ],
)
def test_h22_names_of_secret_files(path: str, secret: bool) -> None:
    assert Secrets().named(path) is secret


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("-----BEGIN " + "OPENSSH PRIVATE KEY-----\n", True),
        ("PuTTY-User-Key-File-2: ssh-rsa\n", True),
        ("k = 'sk-ant-" + "api03-" + "a" * 40 + "'\n", True),
        ("k = 'sk-proj-" + "a" * 40 + "'\n", True),
        ("t = 'hf_" + "a" * 34 + "'\n", True),
        ("t = 'ghp_" + "a" * 36 + "'\n", True),
        ("k = 'AKIA" + "ABCDEFGHIJKLMNOP'\n", True),
        ("-----BEGIN PUBLIC KEY-----\n", False),
        ("sk-learn, hf_hub, task-ant-hill\n", False),
        ('key = os.environ["API_KEY"]\n', False),
    ],
)
def test_h22_marks_of_secrets_in_a_text(text: str, secret: bool) -> None:
    assert Secrets().marked("a.py", text) is secret


def test_h22_a_workspace_inside_a_secret_folder(tmp_path: Path) -> None:
    root = fill(tmp_path / ".ssh" / "conf.d", {"hosts": "canary\n", "in/more": "canary\n"})
    assert texts(Walk(root, Secrets())) == ({}, Counter({"secret": 2}))
    assert set(texts(Walk(root, Secrets(allowed=["hosts"])))[0]) == {"hosts"}


def test_a_setting_allows_what_the_rule_refuses(tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"fixtures/test.pem": PEM, "other.pem": PEM})
    assert set(texts(Walk(root, Secrets(allowed=["fixtures/*.pem"])))[0]) == {"fixtures/test.pem"}


def test_h25_odd_files_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill(
        tmp_path / "w",
        {
            "latin1.py": b'# caf\xe9\nNAME = "caf\xe9"\n',
            "blob.py": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
            "nul.py": b"A = 1\n\x00\nB = 2\n",
            "bom.py": b"\xef\xbb\xbf\xef\xbb\xbfimport os\r\nBOM_MARK = 1\r\n",
            "utf16.py": "x = 1\n".encode("utf-16"),
            "noperm.py": "secret\n",
            "noperm_dir/x.py": "secret\n",
            "large.py": "x" * (MAX_BYTES + 1),
            "good.py": "GOOD_MARK = 1\n",
        },
    )
    os.mkfifo(root / "pipe.py")
    real_open, real_scandir = os.open, os.scandir

    def refuse_open(path: str, *args: int) -> int:
        if str(path).endswith("noperm.py"):
            raise PermissionError(13, "refused")
        return real_open(path, *args)

    def refuse_scandir(path: Path) -> object:
        if str(path).endswith("noperm_dir"):
            raise PermissionError(13, "refused")
        return real_scandir(path)

    monkeypatch.setattr(os, "open", refuse_open)
    monkeypatch.setattr(os, "scandir", refuse_scandir)
    read, skipped = texts(Walk(root, Secrets()))
    assert read == {"bom.py": "import os\nBOM_MARK = 1\n", "good.py": "GOOD_MARK = 1\n"}
    assert skipped == {"binary": 3, "encoding": 1, "special": 1, "unreadable": 2, "large": 1}


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"private.py": "canary\n"})
    root = fill(tmp_path / "w", {"a/x.py": "x\n"})
    (root / "out").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "private.py")
    (root / "a" / "loop").symlink_to(root)
    read, skipped = texts(Walk(root, Secrets()))
    assert set(read) == {"a/x.py"}
    assert skipped["link"] == 3


def test_a_file_swapped_for_a_link_after_the_walk_is_not_followed(tmp_path: Path) -> None:
    secret = fill(tmp_path, {"private.py": "canary\n"}) / "private.py"
    root = fill(tmp_path / "w", {"x.py": "x\n"})
    walk = Walk(root, Secrets())
    found = list(walk.files())
    (root / "x.py").unlink()
    (root / "x.py").symlink_to(secret)
    assert [walk.read(one) for one in found] == [(None, "unreadable")]


def test_dependency_folders_are_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill(
        tmp_path / "w", {f"node_modules/m{i}/index.js": "x\n" for i in range(30)} | {"src/a.ts": "x\n"}
    )
    entered = []
    real_scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: entered.append(path) or real_scandir(path))
    assert set(texts(Walk(root, Secrets()))[0]) == {"src/a.ts"}
    assert set(entered) == {str(root), str(root / "src")}


def test_a_folder_deeper_than_anybody_writes_is_not_entered(tmp_path: Path) -> None:
    shallow, deep = Path(*["d"] * MAX_DEPTH), Path(*["d"] * (MAX_DEPTH + 2))
    root = fill(tmp_path / "w", {f"{shallow}/kept.py": "x\n", f"{deep}/lost.py": "x\n"})
    read, skipped = texts(Walk(root, Secrets()))
    assert set(read) == {f"{shallow}/kept.py"}
    assert skipped == Counter(deep=1)


def test_a_pattern_that_cannot_be_read_allows_nothing(tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {".env": "x\n", "a.pem": "x\n"})
    assert set(texts(Walk(root, Secrets(["!", "*.pem"])))[0]) == {"a.pem"}
