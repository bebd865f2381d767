"""Started once, found again, replaced by the newer only (H27)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copilotd import wire
from copilotd.daemon import launch
from copilotd.daemon.launch import LaunchError
from tests.support.scripted import ScriptedDaemon
from tests.support.wire_client import WireClient

URI = "file:///w/a.py"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    made = ScriptedDaemon(tmp_path, start=False, script="total", plain=True)
    with made.ended_at_last():
        yield made


def command(daemon: ScriptedDaemon) -> list[str]:
    return [*daemon.command, "--detach"]


async def hello(streams: launch.Streams) -> wire.Welcome:
    """Say Hello; the connection stays open as long as the writer is held."""
    reader, writer = streams
    writer.write(wire.frame(wire.Hello("0.1.0", "editor")))
    welcome = wire.from_daemon(await wire.read_frame(reader))
    assert isinstance(welcome, wire.Welcome)
    return welcome


def start(daemon: ScriptedDaemon, environ: dict[str, str] | None = None) -> int:
    """One front's start; the pid of the daemon it reached."""

    async def once() -> int:
        streams = await launch.connect(environ or daemon.env, command(daemon))
        welcome = await hello(streams)
        streams[1].close()
        return welcome.pid

    return asyncio.run(once())


def socket_of(daemon: ScriptedDaemon) -> Path:
    return next((daemon.home / "run").glob("*.sock"))


def lock_of(daemon: ScriptedDaemon) -> Path:
    return next((daemon.home / "run").glob("*.lock"))


def cli(daemon: ScriptedDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "copilotd", *words]
    return subprocess.run(line, env=daemon.env, capture_output=True, text=True, timeout=60, check=False)


def ends(pid: int, seconds: float = 30.0) -> bool:
    """Wait until a process that is no child of ours is gone."""
    fd = os.pidfd_open(pid)
    try:
        done = asyncio.run(_readable(fd, seconds))
    finally:
        os.close(fd)
    return done


async def _readable(fd: int, seconds: float) -> bool:
    event = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, event.set)
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def test_eight_fronts_at_once_get_one_daemon_and_all_an_answer(daemon: ScriptedDaemon) -> None:
    """H27 f, with eight processes' worth of launches that know nothing of each other."""
    pids: list[int] = []
    answers: list[str] = []

    def front() -> None:
        pids.append(start(daemon))
        with WireClient(socket_of(daemon)) as client:
            client.hello()
            client.ready()
            client.send(wire.Open(URI, "python", 1, "x"))
            answers.append(client.complete(URI, 1, 1).items[0].text)

    threads = [threading.Thread(target=front) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(pids) == 8
    assert len(set(pids)) == 1
    assert daemon.living() == [pids[0]]
    assert answers == ["total"] * 8
    assert len(daemon.records("load")) == 1


def test_eight_daemons_started_at_once_are_one(daemon: ScriptedDaemon) -> None:
    """Without the front's own lock: the daemon's lock alone."""
    processes = [
        subprocess.Popen(
            command(daemon), env=daemon.env, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        for _ in range(8)
    ]
    lines = set()
    for process in processes:
        assert process.stdout is not None
        lines.add(process.stdout.readline())
        process.stdout.close()
        assert process.wait(30) == 0
    assert lines == {f"ready {socket_of(daemon)}\n"}
    assert left_over(daemon, 1) == 1


def left_over(daemon: ScriptedDaemon, expected: int) -> int:
    """How many run once those that are about to end have ended."""
    end = time.monotonic() + 30
    while len(daemon.living()) > expected and time.monotonic() < end:
        time.sleep(0.05)
    return len(daemon.living())


def test_after_kill_9(daemon: ScriptedDaemon) -> None:
    first = start(daemon)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert socket_of(daemon).is_socket()  # left over
    second = start(daemon)
    assert second != first
    assert daemon.living() == [second]


def test_a_second_start_names_the_first(daemon: ScriptedDaemon) -> None:
    pid = start(daemon)
    inode = socket_of(daemon).stat().st_ino
    second = cli(daemon, "serve")
    assert second.returncode == 0
    assert str(pid) in second.stderr
    assert second.stdout == f"ready {socket_of(daemon)}\n"
    assert socket_of(daemon).stat().st_ino == inode
    assert daemon.living() == [pid]


def test_a_regular_file_in_the_way_is_named_and_kept(daemon: ScriptedDaemon) -> None:
    pid = start(daemon)
    way = socket_of(daemon)
    os.kill(pid, signal.SIGKILL)
    assert ends(pid)
    way.unlink()
    way.write_text("mine")
    with pytest.raises(LaunchError, match=way.name):
        start(daemon)
    assert way.read_text() == "mine"
    assert left_over(daemon, 0) == 0
    way.unlink()
    assert start(daemon)


def test_a_regular_file_in_one_of_several_places_is_passed_by(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    """The next place serves; a front with another environment finds the same daemon there."""
    runtime = tmp_path / "runtime"
    (runtime / "copilotd").mkdir(parents=True, mode=0o700)
    way = runtime / "copilotd" / f"{launch.platform.key()}.sock"
    way.write_text("mine")
    environ = daemon.env | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    del environ["COPILOTD_HOME"]
    if Path(f"/run/user/{os.getuid()}").exists():
        pytest.skip("a real place of this user would be used")
    pid = start(daemon, environ | {"XDG_RUNTIME_DIR": str(runtime)})
    try:
        assert start(daemon, environ) == pid
        assert way.read_text() == "mine"
    finally:
        os.kill(pid, signal.SIGTERM)
        assert ends(pid)


def test_a_daemon_in_the_runtime_folder_is_found_without_the_variable(
    daemon: ScriptedDaemon, tmp_path: Path
) -> None:
    if Path(f"/run/user/{os.getuid()}").exists():
        pytest.skip("a real place of this user would be used")
    (tmp_path / "runtime").mkdir(mode=0o700)
    environ = daemon.env | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    del environ["COPILOTD_HOME"]
    pid = start(daemon, environ | {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")})
    try:
        assert list((tmp_path / "runtime").rglob("*.sock"))
        assert start(daemon, environ) == pid
    finally:
        os.kill(pid, signal.SIGTERM)
        assert ends(pid)


def _sleeping(daemon: ScriptedDaemon) -> str:
    process = subprocess.Popen(["sleep", "60"])
    daemon.sleeper = process  # type: ignore[attr-defined]
    return f"{process.pid}\n{socket_of(daemon)}\n"


@pytest.mark.parametrize("text", [_sleeping, lambda daemon: "", lambda daemon: "999999999\n/nowhere\n"])
def test_a_pid_file_that_lies(daemon: ScriptedDaemon, text: Callable[[ScriptedDaemon], str]) -> None:
    """H27 d, e: the pid of a stranger, nothing at all, the dead."""
    first = start(daemon)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    lock_of(daemon).write_text(text(daemon))
    second = start(daemon)
    assert daemon.living() == [second]
    if sleeper := getattr(daemon, "sleeper", None):
        assert sleeper.poll() is None
        sleeper.kill()
        sleeper.wait(10)


def test_an_old_daemon_that_is_still_dying(daemon: ScriptedDaemon) -> None:
    """H27 g: its lock is held and its socket is there, but nobody accepts any more."""
    holder = subprocess.Popen(
        [sys.executable, "-P", "-c", DYING], env=daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    threading.Timer(1.0, holder.stdin.close).start()
    pid = start(daemon)
    assert holder.wait(10) == 0
    assert daemon.living() == [pid]
    holder.stdout.close()


DYING = """
import sys
from copilotd.daemon import platform
from copilotd.daemon.lock import daemon_lock
lock = daemon_lock()
assert lock.acquire()
server, path, _ = platform.listen()
lock.write(f"1\\n{path}\\n")
server.close()
print("held", flush=True)
sys.stdin.read()
"""


def test_an_older_daemon_is_replaced_after_it_freed_its_models(daemon: ScriptedDaemon) -> None:
    old = ScriptedDaemon(daemon.home, plain=True, version="0.0.1")
    with old:
        pid = start(daemon)
        assert old.process is not None
        assert old.process.wait(30) == 0
        assert daemon.living() == [pid]
        with WireClient(socket_of(daemon)) as client:
            assert client.hello().version == "9999"
            client.ready()
        assert [r["event"] for r in daemon.records()] == ["load", "close", "load"]


def test_a_newer_daemon_is_kept(daemon: ScriptedDaemon) -> None:
    with ScriptedDaemon(daemon.home, plain=True, version="9999") as new:
        assert start(daemon) == new.pid
        assert start(daemon) == new.pid


def test_a_named_socket_starts_nothing(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    named = daemon.env | {"COPILOTD_SOCKET": str(tmp_path / "forwarded.sock")}
    with pytest.raises(LaunchError, match=r"forwarded\.sock"):
        start(daemon, named)
    assert daemon.living() == []
    pid = start(daemon)
    (tmp_path / "forwarded.sock").symlink_to(socket_of(daemon))
    assert start(daemon, named) == pid


def as_if_just_tried(daemon: ScriptedDaemon) -> None:
    """However long this machine took over the last start."""
    later = time.time() + 60
    os.utime(next((daemon.home / "run").glob("*.starts")), (later, later))


def test_a_start_that_fails_says_where_the_log_is_and_is_not_repeated_in_a_loop(
    daemon: ScriptedDaemon,
) -> None:
    broken = [sys.executable, "-P", "-c", "raise SystemExit(1)"]

    def attempt() -> str:
        with pytest.raises(LaunchError) as caught:
            asyncio.run(launch.connect(daemon.env, broken))
        return str(caught.value)

    said = [attempt() for _ in range(3)]
    as_if_just_tried(daemon)
    said += [attempt() for _ in range(2)]
    assert all(str(daemon.home / "state") in text for text in said)
    assert said[0] == said[1] == said[2]
    assert "tried again in" in said[3]
    assert "tried again in" in said[4]


def test_a_daemon_that_dies_at_its_first_request_is_not_restarted_for_every_key(tmp_path: Path) -> None:
    daemon = ScriptedDaemon(tmp_path, start=False, plain=True, failures=["die"])
    with daemon.ended_at_last():
        for _ in range(3):
            pid = start(daemon)
            with WireClient(socket_of(daemon)) as client:
                client.hello()
                client.ready()
                client.send(wire.Open(URI, "python", 1, "x"))
                client.ask(URI, 1, 1)
                assert client.closed()
            assert ends(pid)
        as_if_just_tried(daemon)
        with pytest.raises(LaunchError, match="3 times"):
            start(daemon)


def test_stopping_it_again_and_again_is_no_failure_to_start(daemon: ScriptedDaemon) -> None:
    for _ in range(5):
        start(daemon)
        assert cli(daemon, "stop").returncode == 0


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_start(daemon: ScriptedDaemon) -> None:
    (daemon.home / "cache").write_text("a file in its place")
    assert start(daemon)


def test_the_daemon_is_nobodys_child_and_stands_in_our_folder(daemon: ScriptedDaemon) -> None:
    pid = start(daemon)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    assert int(fields[1]) != os.getpid()  # parent
    assert int(fields[3]) == pid or int(fields[3]) != os.getsid(0)  # session
    assert Path(f"/proc/{pid}/cwd").readlink() == daemon.home / "state"
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Umask:\t0077" in status
    links = [str(Path(f"/proc/{pid}/fd/{fd}").readlink()) for fd in (1, 2)]
    assert all(link.startswith(str(daemon.home / "state")) for link in links)


def test_a_socket_that_a_cleaner_took_comes_back(
    daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(daemon)
    path = socket_of(daemon)
    path.unlink()

    async def back() -> None:
        async with asyncio.timeout(60):
            while not path.exists():
                await asyncio.sleep(0.1)

    asyncio.run(back())
    assert start(daemon) == pid


def test_the_commands(daemon: ScriptedDaemon) -> None:
    assert '"not running"' in cli(daemon, "status", "--json").stdout
    assert cli(daemon, "stop").returncode == 1
    pid = start(daemon)
    assert f'"pid": {pid}' in cli(daemon, "status", "--json").stdout
    assert f"pid {pid}" in cli(daemon, "status").stdout
    assert cli(daemon, "reload").stdout == "ready scripted\n"
    assert cli(daemon, "unload").stdout == "unloaded\n"
    assert cli(daemon, "unload").stdout == "unloaded\n"
    assert [r["event"] for r in daemon.records()] == ["load", "close", "load", "close"]
    stopped = cli(daemon, "stop")
    assert (stopped.stdout, stopped.returncode) == ("stopped\n", 0)
    assert daemon.living() == []
    assert list((daemon.home / "run").glob("*.sock")) == []


def test_what_libraries_print_goes_to_a_file_of_ours(tmp_path: Path) -> None:
    """H20, the daemon's side: nothing but the first line reaches whoever started it."""
    noisy = ScriptedDaemon(tmp_path, start=False, script="total", plain=True, noise=True)
    with noisy.ended_at_last():
        start(noisy)
        with WireClient(socket_of(noisy)) as client:
            client.hello()
            client.ready()
            client.send(wire.Open(URI, "python", 1, "x"))
            assert client.complete(URI, 1, 1).items[0].text == "total"
        stray = next((tmp_path / "state").glob("*.out")).read_text()
        for text in ("native log line", "child says hi", "deprecated"):
            assert stray.count(text) >= 2  # at the load and at the request


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("copilotd.daemon.launch, copilotd.daemon.platform", "torch transformers tokenizers numpy"),
        ("copilotd.cli.serve", "torch transformers tokenizers"),
    ],
)
def test_neither_a_front_nor_a_daemon_that_starts_loads_a_model_library(modules: str, absent: str) -> None:
    code = f"import sys, {modules}; print([m for m in {absent.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
