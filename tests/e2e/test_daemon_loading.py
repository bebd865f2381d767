"""Models load in the background; what goes wrong is said once and not tried again (H30)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from copilotd import wire
from tests.support.scripted import ScriptedDaemon
from tests.support.wire_client import WireClient

URI = "file:///w/a.py"


def daemon(home: Path, **options: object) -> ScriptedDaemon:
    return ScriptedDaemon(home, **({"script": "ok", "plain": True} | options))


@contextmanager
def editor(of: ScriptedDaemon) -> Iterator[WireClient]:
    with of.client() as client:
        client.hello()
        client.send(wire.Open(URI, "python", 1, "abc"))
        yield client


def cli(of: ScriptedDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "copilotd", *words]
    return subprocess.run(line, env=of.env, capture_output=True, text=True, timeout=60, check=False)


def notices(client: WireClient) -> list[str]:
    return [message.text for message in client.seen if isinstance(message, wire.Notice)]


def test_requests_are_answered_empty_at_once_while_loading(tmp_path: Path) -> None:
    with daemon(tmp_path, loads=["hold"]) as started, editor(started) as client:
        for _ in range(5):
            answer = client.complete(URI, 1, 2)
            assert (answer.outcome, answer.reason) == ("empty", "loading")
        loading = client.expect(wire.State, lambda state: state.progress is not None)
        assert loading.state == "loading"
        assert "MB" in loading.message
        started.release_load()
        assert client.ready().model == "scripted"
        assert client.complete(URI, 1, 2).outcome == "answered"
        assert notices(client) == []


def test_progress_is_pushed(tmp_path: Path) -> None:
    with daemon(tmp_path, loads=["progress"]) as started, editor(started) as client:
        client.ready()
        told = [m.progress for m in client.seen if isinstance(m, wire.State) and m.progress is not None]
        assert told == sorted(told)


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        ("error:model.safetensors ends early; delete it and pull again", "model.safetensors"),
        ("oom", "memory"),
        ("bug:config.json lacks hidden_size", "hidden_size"),
    ],
)
def test_a_failed_load_is_said_once_and_mended_by_reload(tmp_path: Path, outcome: str, named: str) -> None:
    with daemon(tmp_path, loads=[outcome, "ok"]) as started, editor(started) as client:
        client.expect(wire.State, lambda state: state.state == "failed")
        for _ in range(5):
            answer = client.complete(URI, 1, 2)
            assert (answer.outcome, answer.reason) == ("empty", "failed")
        client.send(wire.Pause(True), wire.Pause(False))  # which tells the state once more
        client.expect(wire.State, lambda state: state.state == "paused")
        client.expect(wire.State, lambda state: state.state == "failed")
        with editor(started) as later:
            later.expect(wire.Notice)
            later.complete(URI, 1, 2)
            assert len(notices(later)) == 1
        assert len(notices(client)) == 1
        assert named in notices(client)[0]
        assert "copilotd reload" in notices(client)[0] or "pull again" in notices(client)[0]
        assert len(started.records("load")) == 1
        assert named in cli(started, "status").stdout
        pid = started.pid
        reload = cli(started, "reload")
        assert (reload.returncode, reload.stdout) == (0, "ready scripted\n")
        assert named not in cli(started, "status").stdout
        client.ready()
        assert client.complete(URI, 1, 2).outcome == "answered"
        assert len(started.records("load")) == 2
        assert {record["pid"] for record in started.records()} == {pid}


def test_a_reload_that_fails_again_says_so_again(tmp_path: Path) -> None:
    with daemon(tmp_path, loads=["error:first", "error:second"]) as started, editor(started) as client:
        assert "first" in client.expect(wire.Notice).text
        reload = cli(started, "reload")
        assert reload.returncode == 1
        assert "second" in reload.stdout
        assert "second" in client.expect(wire.Notice).text


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    with daemon(tmp_path, settings="[daemon\n") as started, editor(started) as client:
        notice = client.expect(wire.Notice)
        assert "config.toml" in notice.text
        assert "line 1" in notice.text
        assert client.complete(URI, 1, 2).reason == "failed"
        assert started.records("load") == []
        (tmp_path / "config.toml").write_text('[daemon]\nmodel = "other"\n')
        assert cli(started, "reload").returncode == 0
        client.ready()
        assert client.complete(URI, 1, 2).outcome == "answered"
        assert started.records("load")[-1]["model"] == "other"


def test_h14_a_value_that_cannot_be_used_costs_its_own_key_only(tmp_path: Path) -> None:
    settings = '[daemon]\ntemperature = "hot"\ntop_p = 1.5\nmodel = "mine"\n'
    with daemon(tmp_path, settings=settings) as started, editor(started) as client:
        client.ready()
        for _ in range(3):
            assert client.complete(URI, 1, 2).outcome == "answered"
        [text] = notices(client)
        assert "daemon.temperature" in text
        assert "daemon.top_p" in text
        assert started.records("load")[-1]["model"] == "mine"
        assert "daemon.temperature" in cli(started, "config").stderr
        (tmp_path / "config.toml").write_text("[daemon]\ntemperature = 0.5\n")
        assert cli(started, "reload").returncode == 0
        client.ready()
        assert len(notices(client)) == 1


def test_reload_while_loading_ends_the_first_load(tmp_path: Path) -> None:
    with daemon(tmp_path, loads=["hold", "ok"]) as started, editor(started) as client:
        client.expect(wire.State, lambda state: state.progress is not None)
        assert cli(started, "reload").stdout == "ready scripted\n"
        assert client.complete(URI, 1, 2).outcome == "answered"


def test_stop_while_loading(tmp_path: Path) -> None:
    with daemon(tmp_path, loads=["hold"]) as started, editor(started) as client:
        client.expect(wire.State, lambda state: state.progress is not None)
        assert cli(started, "stop").stdout == "stopped\n"
        assert client.closed()
        assert started.process is not None
        assert started.process.wait(10) == 0


def test_idle_models_are_freed_and_come_back(tmp_path: Path) -> None:
    settings = "[daemon]\nidle_unload_s = 1\n"
    with daemon(tmp_path, settings=settings) as started, editor(started) as client:
        client.ready()
        client.expect(wire.State, lambda state: "unloaded" in state.message)
        assert len(started.records("close")) == 1
        assert client.complete(URI, 1, 2).reason == "loading"
        client.ready()
        assert client.complete(URI, 1, 2).outcome == "answered"
        assert len(started.records("load")) == 2


def test_an_idle_daemon_leaves_when_its_last_editor_left(tmp_path: Path) -> None:
    with daemon(tmp_path, settings="[daemon]\nidle_exit_s = 2\n") as started:
        with editor(started) as client:
            client.ready()
            client.drain(3.0)
            assert client.complete(URI, 1, 2).outcome == "answered"  # an editor is there: it stays
        assert started.process is not None
        assert started.process.wait(30) == 0
        assert list((tmp_path / "run").glob("*.sock")) == []


def test_out_of_memory_halves_the_caches_and_then_lets_the_models_go(tmp_path: Path) -> None:
    with daemon(tmp_path, failures=["oom", "ok", "oom", "ok"]) as started, editor(started) as client:
        client.ready()
        assert client.complete(URI, 1, 2).reason == "memory"
        assert "halved" in client.expect(wire.Notice).text
        assert client.complete(URI, 1, 2).outcome == "answered"
        assert client.complete(URI, 1, 2).reason == "memory"
        assert "smaller" in client.expect(wire.Notice).text
        assert client.complete(URI, 1, 2).reason == "failed"
        assert len(started.records("close")) == 1
        assert cli(started, "reload").returncode == 0
        assert client.complete(URI, 1, 2).reason == "memory"  # a new backend, with its failures ahead


def test_out_of_memory_once_more_brings_the_smaller_pair(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, failures=["oom", "oom", "ok"], smaller="tiny") as started,
        editor(started) as client,
    ):
        client.ready()
        assert client.complete(URI, 1, 2).reason == "memory"
        assert "halved" in client.expect(wire.Notice).text
        assert client.complete(URI, 1, 2).reason == "memory"
        assert "tiny" in client.expect(wire.Notice).text
        assert [record["model"] for record in started.records("load")] == ["auto", "tiny"]


def test_a_lost_device_ends_the_daemon(tmp_path: Path) -> None:
    with daemon(tmp_path, failures=["cuda"]) as started, editor(started) as client:
        client.ready()
        assert client.complete(URI, 1, 2).reason == "device"
        assert client.closed()
        assert started.process is not None
        started.process.wait(30)
        assert list((tmp_path / "run").glob("*.sock")) == []


def test_a_bug_in_one_request_is_no_text_in_the_log_and_no_end(tmp_path: Path) -> None:
    with daemon(tmp_path, failures=["bug:my secret text", "ok"]) as started, editor(started) as client:
        client.ready()
        assert client.complete(URI, 1, 2).reason == "error"
        assert client.complete(URI, 1, 2).outcome == "answered"
        text = "".join(file.read_text() for file in (tmp_path / "state").glob("*"))
        assert "RuntimeError" in text
        assert "secret" not in text


def test_killed_in_the_middle_of_a_request(tmp_path: Path) -> None:
    with daemon(tmp_path, delay_per_token_ms=500) as started:
        with editor(started) as client:
            client.ready()
            client.ask(URI, 1, 2)
            started.kill()
            assert client.closed()
        started.start()
        with editor(started) as client:
            client.ready()
            assert client.complete(URI, 1, 2).outcome == "answered"
