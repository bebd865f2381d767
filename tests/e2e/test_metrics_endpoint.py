"""`copilotd metrics` beside a real daemon: the numbers of a session, on this machine only, without its text."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from copilotd import wire
from copilotd.config import SessionSettings
from tests.support.scripted import ScriptedDaemon

URI = "file:///w/canary_name.py"
METRICS = [sys.executable, "-P", "-m", "copilotd", "metrics"]


def listening(pid: int) -> list[str]:
    """Addresses, as the kernel writes them, on which a process listens for TCP."""
    held = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in held:
                found.append(fields[1].partition(":")[0])
    return found


def a_session(daemon: ScriptedDaemon) -> None:
    with daemon.client() as client:
        client.hello()
        client.ready()
        client.send(
            wire.Configure(SessionSettings(max_latency_ms=0)),
            wire.Open(URI, "python", 1, "canary = 1\nre"),
            wire.Open(URI + "x", "canary 'language'", 1, "canary = 1\nre"),
        )
        [item] = client.complete(URI, 1, 13).items
        client.send(wire.Change(URI, 2, (wire.Splice(13, 13, "t"),)))
        client.complete(URI, 2, 14)
        client.send(wire.Accepted(item.id))  # of the answer before the last: no longer shown
        [item] = client.complete(URI, 2, 14).items
        client.send(wire.Accepted(item.id, 2), wire.Change(URI, 3, (wire.Splice(14, 14, "ur"),)))
        [item] = client.complete(URI, 3, 16).items
        client.send(wire.Accepted(item.id), wire.Change(URI, 4, (wire.Splice(16, 16, "n total"),)))
        client.complete(URI + "x", 1, 12)
        client.complete(URI, 3, 1)
        client.send(wire.Close(URI))
        client.complete(URI, 3, 1)


@contextmanager
def serving(env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([*METRICS, "--serve", "0"], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()


def read(url: str) -> str:
    with urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_a_session_in_numbers(tmp_path: Path) -> None:
    with ScriptedDaemon(tmp_path, script="turn total") as daemon:
        a_session(daemon)
        with serving(daemon.env) as (server, url):
            text = read(url)
            assert url.startswith("http://127.0.0.1:")
            assert listening(server.pid) == ["0100007F"]
            assert listening(daemon.pid) == []
            daemon.kill()
            assert read(url).splitlines()[-1] == "copilotd_up 0.0"
        assert server.returncode == 130
    lines = text.splitlines()
    for line in (
        'copilotd_answered_total{language="python"} 4.0',
        'copilotd_typed_through_total{language="python"} 3.0',
        'copilotd_shown_total{language="python"} 1.0',
        'copilotd_accepted_total{language="python"} 1.0',
        'copilotd_accepted_in_part_total{language="python"} 1.0',
        'copilotd_accepted_characters_total{language="python"} 9.0',
        'copilotd_kept_total{language="python"} 2.0',
        'copilotd_shown_total{language="other"} 1.0',
        'copilotd_empty_total{language="python",reason="stale"} 1.0',
        'copilotd_empty_total{language="other",reason="unopened"} 1.0',
        'copilotd_stage_seconds_count{stage="answer"} 2.0',
        'copilotd_stage_seconds_count{stage="memory"} 3.0',
        "copilotd_up 1.0",
    ):
        assert line in lines, text
    assert "canary" not in text
    assert "file:" not in text


def test_without_a_daemon_it_says_so_and_starts_none(tmp_path: Path) -> None:
    done = subprocess.run(METRICS, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "not running" in done.stderr


def test_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with ScriptedDaemon(tmp_path / "home", script="turn total") as daemon:
        a_session(daemon)
        subprocess.run([*METRICS, "--html", str(page)], env=daemon.env, check=True, timeout=120)
    text = page.read_text()
    assert "<svg" in text
    assert "typed through" in text
    assert "canary" not in text


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*METRICS, "--serve", port], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, f"copilotd metrics: port {port}: Address already in use\n")
