"""`pull` from a hub over real HTTP: right files, or none and one message that says what to do."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from copilotd.models import hub, store, workplace
from copilotd.models.catalogue import named
from copilotd.models.wheel import PullError
from tests.support.hub_server import HubServer, hub_server
from tests.support.toy_checkpoints import build, write_model

ENTRY = named("Qwen2.5-Coder-0.5B")
assert ENTRY is not None
WEIGHTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small model of real form: two shards of some megabytes, and what a repository holds beside them."""
    folder = write_model(
        tmp_path_factory.mktemp("source") / "model", build(intermediate_size=4096), shard="4MB"
    )
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(WEIGHTS) < files.keys()
    return files | {
        "LICENSE": b"Apache License\n",
        "README.md": b"# model card\n",
        "pytorch_model.bin": b"\x80\x04 a pickle",
        "modeling_custom.py": b"import os\n",
        "extra.safetensors": b"not the model's",
    }


@pytest.fixture
def server(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("HF_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", False)
    hasty = SimpleNamespace(sleep=lambda seconds: None, time=time.time)  # between its tries
    monkeypatch.setattr("huggingface_hub.file_download.time", hasty)
    monkeypatch.setattr(hub, "CHUNK", 1 << 16)
    with hub_server("Qwen/Qwen2.5-Coder-0.5B", dict(files)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def folder() -> Path:
    return store.models_folder() / "Qwen2.5-Coder-0.5B"


def kept() -> list[str]:
    models = store.models_folder()
    return sorted(path.name for path in models.iterdir() if path.name != ".lock") if models.exists() else []


def assert_right(files: dict[str, bytes]) -> None:
    there = {path.name: path.read_bytes() for path in folder().iterdir()}
    there.pop(hub.MANIFEST)
    left = ("README.md", "pytorch_model.bin", "modeling_custom.py", "extra.safetensors")
    assert there == {name: content for name, content in files.items() if name not in left}
    assert kept() == ["Qwen2.5-Coder-0.5B"]


def test_only_what_cannot_run_code_is_taken(server: HubServer, files: dict[str, bytes]) -> None:
    seen: list[tuple[int, int]] = []
    assert hub.pull(ENTRY, lambda stage, done, total: seen.append((done, total))) == folder()
    assert_right(files)
    assert store.on_disk(ENTRY) == folder()
    assert (folder().parent.stat().st_mode & 0o777) == 0o700
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    manifest = json.loads((folder() / hub.MANIFEST).read_bytes())
    assert {file["name"]: file["sha256"] for file in manifest["files"] if file["sha256"]} == {
        name: hashlib.sha256(files[name]).hexdigest() for name in WEIGHTS
    }
    asked = [request for request in server.requests if not request.startswith("GET /storage/")]
    assert all(request.split()[0] == "GET" for request in asked)
    assert sum("/api/" in request for request in asked) == 1  # and nothing else is asked or told
    assert not [request for request in asked if "Qwen/Qwen2.5-Coder-0.5B" not in request]


def test_a_pull_goes_on_where_it_was_ended(server: HubServer, files: dict[str, bytes]) -> None:
    class EndedError(Exception):
        pass

    def end(stage: str, done: int, total: int) -> None:
        if done > total // 2:
            raise EndedError

    with pytest.raises(EndedError):
        hub.pull(ENTRY, end)
    assert store.on_disk(ENTRY) is None
    assert kept() == [".fetching-Qwen2.5-Coder-0.5B"]
    server.requests.clear()
    hub.pull(ENTRY, quiet)
    assert_right(files)
    assert [request for request in server.requests if "bytes=" in request]
    assert not [request for request in server.requests if "config.json" in request]


def test_a_server_without_ranges_starts_the_file_again(server: HubServer, files: dict[str, bytes]) -> None:
    work = store.models_folder() / ".fetching-Qwen2.5-Coder-0.5B"
    server.cut.add(WEIGHTS[1])
    with pytest.raises(PullError):
        hub.pull(ENTRY, quiet)
    assert (work / f"{WEIGHTS[1]}.part").stat().st_size > 0
    server.cut.clear()
    server.ranges = False
    hub.pull(ENTRY, quiet)
    assert_right(files)


def test_parts_that_are_wrong_are_fetched_anew(server: HubServer, files: dict[str, bytes]) -> None:
    server.cut.add(WEIGHTS[0])
    with pytest.raises(PullError, match="kept"):
        hub.pull(ENTRY, quiet)
    part = store.models_folder() / ".fetching-Qwen2.5-Coder-0.5B" / f"{WEIGHTS[0]}.part"
    part.write_bytes(bytes(part.stat().st_size))
    server.cut.clear()
    hub.pull(ENTRY, quiet)
    assert_right(files)
    part.parent.mkdir()
    shutil.rmtree(folder())
    part.write_bytes(b"longer than the whole" * 100_000)  # of an unknown state: thrown away
    hub.pull(ENTRY, quiet)
    assert_right(files)


def test_another_state_of_the_repository_starts_anew(
    server: HubServer, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.cut.add(WEIGHTS[1])
    with pytest.raises(PullError):
        hub.pull(ENTRY, quiet)
    server.cut.clear()
    monkeypatch.setitem(server.files, "config.json", files["config.json"] + b"\n")
    hub.pull(ENTRY, quiet)
    assert (folder() / "config.json").read_bytes() == files["config.json"] + b"\n"


PULL = (
    "import sys\nfrom copilotd.cli import main\nfrom copilotd.models import hub\nhub.ANSWER_S = 600.0\n"
    "sys.exit(main(['pull', 'Qwen2.5-Coder-0.5B']))\n"
)
"""with more patience than a crowded machine needs"""


@pytest.mark.timeout(1200)
def test_twenty_interruptions_end_in_the_right_files(
    server: HubServer, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed or interrupted at random bytes, again and again; each pull goes on with what the last one left.

    It is done while the pull waits for a block, so it cannot have come to its end, however slow we are; and
    who asked is gone before anything else is sent.
    """
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "600")
    rng = random.Random(9)
    interrupted = ended = 0
    while interrupted < 20 or not ended:
        ends = server.sent + rng.randrange(2_000_000)
        number = signal.SIGKILL if interrupted % 2 else signal.SIGINT
        started: Future[subprocess.Popen[bytes]] = Future()

        def end(
            sent: int,
            ends: int = ends,
            number: int = number,
            started: Future[subprocess.Popen[bytes]] = started,
        ) -> None:
            if sent >= ends:
                process = started.result()
                process.send_signal(number)
                process.wait()
                raise ConnectionAbortedError

        server.before = end if interrupted < 20 else lambda sent: None
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PULL],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.set_result(process)
        if process.wait() == 0:
            assert_right(files)
            shutil.rmtree(folder())
            ended += 1
        else:
            assert process.returncode in (-signal.SIGKILL, 130)
            assert store.on_disk(ENTRY) is None
            interrupted += 1


# ---- what a network does -----------------------------------------------------------------------------------


def knob(name: str, value: object) -> Callable[[HubServer], None]:
    return lambda server: setattr(server, name, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (knob("html", True), r"no list of files: a proxy's login page.*models add"),
        (knob("status", 401), r"HTTP 401.*HF_TOKEN"),
        (knob("status", 404), r"no such model \(HTTP 404\)"),
        (knob("status", 429), r"HTTP 429.*few minutes"),
        (knob("status", 503), r"HTTP 503.*later"),
        (knob("unknown_sizes", True), r"no size and checksum of .*another mirror"),
        (knob("spoilt", {WEIGHTS[0]}), r"checksum differs.*not kept.*HF_ENDPOINT"),
        (knob("spoilt", {"config.json"}), r"config\.json is not the file that was published"),
        (knob("page", {"config.json": b"<html>Please log in</html>"}), r"something else than the file"),
        (knob("files", {"config.json": b"{}", "tokenizer.json": b"{}", "a.bin": b"x"}), r"no safetensors.*run code"),
        (knob("files", {"config.json": b"{}", "model.safetensors": b"x"}), r"lacks tokenizer\.json"),
    ],
)  # fmt: skip
def test_what_a_server_can_do_wrong(
    server: HubServer, change: Callable[[HubServer], None], words: str
) -> None:
    change(server)
    with pytest.raises(PullError, match=words):
        hub.pull(ENTRY, quiet)
    assert store.on_disk(ENTRY) is None


def test_a_hub_that_hangs_is_not_waited_for(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ANSWER_S", 0.3)
    server.hang = 3.0
    with pytest.raises(PullError, match=r"does not answer.*HTTPS_PROXY.*HF_ENDPOINT.*models add"):
        hub.pull(ENTRY, quiet)


def test_a_download_that_stalls_is_given_up_and_goes_on_with_the_next_pull(
    server: HubServer, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "STALL_S", 0.2)
    goes_on = threading.Event()
    half = len(files[WEIGHTS[1]]) // 2

    def stall(sent: int) -> None:
        if sent > half:
            goes_on.wait(60)

    server.before = stall
    began = time.monotonic()
    with pytest.raises(
        PullError, match=rf"sends nothing more of {WEIGHTS[1]}.*kept: pull again.*HTTPS_PROXY"
    ):
        hub.pull(ENTRY, quiet)
    assert time.monotonic() - began < 30  # the library's own patience is a minute
    goes_on.set()
    server.requests.clear()
    hub.pull(ENTRY, quiet)
    assert_right(files)
    assert [request for request in server.requests if "bytes=" in request]


def test_a_persons_own_patience_comes_first(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 77)
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "77")  # which the library has read
    hub.pull(ENTRY, quiet)
    assert constants.HF_HUB_DOWNLOAD_TIMEOUT == 77


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:9", "cannot be reached"),
        ("http://no-such-host.invalid", "cannot be reached"),
        ("nonsense", "cannot be reached|no address"),
    ],
)
def test_a_hub_that_is_not_there(
    server: HubServer, monkeypatch: pytest.MonkeyPatch, endpoint: str, words: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(PullError, match=words):
        hub.pull(ENTRY, quiet)


# ---- what a disk does --------------------------------------------------------------------------------------


def test_a_full_disk_is_seen_before_anything_is_fetched(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(workplace.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(PullError, match=r"1 MB free and 20\d MB are needed"):
        hub.pull(ENTRY, quiet)
    assert server.sent == 0


def test_a_disk_that_fills_up_meanwhile(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, block: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(hub._Counting, "write", full)
        with pytest.raises(PullError, match="No space left"):
            hub.pull(ENTRY, quiet)
    hub.pull(ENTRY, quiet)
    assert store.on_disk(ENTRY) == folder()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(server: HubServer) -> None:
    models = store.models_folder()
    models.mkdir(parents=True)
    models.chmod(0o500)
    with pytest.raises(PullError, match="could not be written"):
        hub.pull(ENTRY, quiet)


def test_a_folder_in_whose_place_a_file_stands(server: HubServer) -> None:
    store.models_folder().parent.mkdir(parents=True)
    store.models_folder().write_text("")
    with pytest.raises(PullError, match="could not be written"):
        hub.pull(ENTRY, quiet)


def test_two_pulls_at_once(server: HubServer) -> None:
    with workplace.alone(store.models_folder()), pytest.raises(PullError, match="another `copilotd pull`"):
        hub.pull(ENTRY, quiet)


# ---- offline -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every try to reach anything is noted, and fails."""
    tries: list[object] = []

    def guard(*words: object, **more: object) -> None:
        tries.append(words)
        raise OSError("the network was asked")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, guard)
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, guard)
    return tries


@pytest.mark.parametrize(
    ("variable", "flag"), [("HF_HUB_OFFLINE", False), ("TRANSFORMERS_OFFLINE", False), ("", True)]
)
def test_offline_means_no_request_at_all(
    no_sockets: list[object], monkeypatch: pytest.MonkeyPatch, variable: str, flag: bool
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    with pytest.raises(PullError, match=r"not fetched: .*models add"):
        hub.pull(ENTRY, quiet, offline=flag)
    assert no_sockets == []


def test_the_guard_sees_requests(no_sockets: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PullError):
        hub.pull(ENTRY, quiet)
    assert no_sockets


def test_no_more_is_written_than_was_announced(server: HubServer, files: dict[str, bytes]) -> None:
    """Whoever answers in the hub's place could fill the disk."""
    server.page["config.json"] = b"<html>" + bytes(5_000_000)
    with pytest.raises(PullError, match="gave something else"):
        hub.pull(ENTRY, quiet)
    written = [path for path in store.models_folder().rglob("config.json*") if path.is_file()]
    assert sum(path.stat().st_size for path in written) <= len(files["config.json"])
    server.page.clear()
    hub.pull(ENTRY, quiet)
    assert_right(files)


def test_a_mirrors_password_is_not_shown(
    server: HubServer, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.url.replace("://", "://me:sesame@"))
    for status in (401, 404, 500):
        server.status = status
        with pytest.raises(PullError) as refused:
            hub.pull(ENTRY, quiet)
        assert server.url in str(refused.value)
        assert "sesame" not in str(refused.value)
    server.status = 0
    server.spoilt = {WEIGHTS[0]}
    with pytest.raises(PullError, match="checksum differs") as refused:
        hub.pull(ENTRY, quiet)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:p@ss@hub.example:8443/x", "https://hub.example:8443/x"),
        ("https://hub.example/a@b", "https://hub.example/a@b"),
        ("https://hub.example", "https://hub.example"),
    ],
)
def test_an_address_as_it_is_shown(address: str, shown: str) -> None:
    assert hub.without_password(address) == shown
