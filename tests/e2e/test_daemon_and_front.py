"""The real front and the real daemon together, as an editor has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.support.lsp_driver import LspProcess
from tests.support.scripted import ScriptedDaemon, own_folder_environment

URI = "file:///w/shared.py"
PATIENT = "[session]\nmax_latency_ms = 0\n"
"""a slow script is waited for to its end"""


def status(env: dict[str, str]) -> dict[str, Any]:
    line = [sys.executable, "-P", "-m", "copilotd", "status", "--json"]
    done = subprocess.run(line, env=env, capture_output=True, check=True, timeout=60)
    found: dict[str, Any] = json.decode(done.stdout)
    return found


def until_answered(editor: LspProcess, place: tuple[int, int], seconds: float = 60.0) -> str:
    """Ask as a typist does, again and again; the first text that comes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if items := editor.complete(URI, place):
            text: str = items[0]["insertText"]
            return text
        time.sleep(0.05)
    raise AssertionError("never answered")


def test_status_names_the_kernels_that_the_models_run_on(tmp_path: Path) -> None:
    env = own_folder_environment(tmp_path) | {"COPILOTD_MODEL": "embedded", "COPILOTD_KERNELS": "torch"}
    try:
        with LspProcess(env) as editor:
            editor.initialize()
            editor.notified("copilotd/didChangeStatus", lambda told: told["state"] == "ready")
            found = status(env)
            assert (found["kernels"], found["why_torch"]) == ("torch", 'kernels = "torch" in the settings')
            editor.shutdown()
    finally:
        line = [sys.executable, "-P", "-m", "copilotd", "stop"]
        subprocess.run(line, env=env, capture_output=True, timeout=60)


def test_a_storm_of_300_requests_through_the_front(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(tmp_path, script="lue = 1", delay_per_token_ms=50, settings=PATIENT) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, "va")
        until_answered(editor, (0, 0))
        before = daemon.starts()
        editor.change(URI, 2, "val = 0\nva")
        for number in range(1000, 1300):
            editor.ask(URI, (1, 2), number=number)
            if number < 1299:
                editor.notify("$/cancelRequest", {"id": number})
        assert editor.response(1299)["result"], status(daemon.env)["requests"]
        for number in range(1000, 1300):
            assert len(editor.responses(number)) == 1
        assert daemon.starts() - before <= 4


def test_unsaved_text_survives_a_restart_of_the_daemon(tmp_path: Path) -> None:
    """A script that knows nothing of us; the daemon is killed in the middle of a request."""
    with (
        ScriptedDaemon(tmp_path, script="(1)", delay_per_token_ms=200, settings=PATIENT) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, "x = 1\n")
        editor.change(URI, 2, ((1, 0), (1, 0), "never_saved = 2\nprint"))
        starts = daemon.starts()
        pending = editor.ask(URI, (2, 5))
        end = time.monotonic() + 30
        while daemon.starts() == starts:
            assert time.monotonic() < end
            time.sleep(0.01)
        daemon.restart()
        answer = editor.response(pending)
        assert "error" not in answer
        editor.change(URI, 3, ((2, 5), (2, 5), "er"))
        assert until_answered(editor, (2, 7)).startswith("(")
        assert "never_saved = 2" in daemon.prompts()[-1]
        assert "printer" in daemon.prompts()[-1]
        assert editor.notifications("window/showMessage") == []


def test_two_windows_never_mix(tmp_path: Path) -> None:
    """H26 through two fronts."""
    rules = {"client A": "a_is", "client B": "b_is"}
    with (
        ScriptedDaemon(tmp_path, rules=rules, delay_per_token_ms=5, settings=PATIENT) as daemon,
        LspProcess(daemon.env) as b,
    ):
        with LspProcess(daemon.env) as a:
            for editor, name in ((a, "A"), (b, "B")):
                editor.initialize()
                editor.open(URI, f'who = "client {name}"\nprint(wh)\n')
            for editor, text in ((a, "a_is"), (b, "b_is")):
                assert until_answered(editor, (1, 8)) == text
            a.ask(URI, (1, 7))  # and is killed in the middle of it
        editor.change(URI, 2, ((0, 0), (0, 0), "# more\n"))
        assert until_answered(b, (2, 8)) == "b_is"
        assert all(("client A" in p) != ("client B" in p) for p in daemon.prompts())
        assert len(daemon.records("load")) == 1
        assert status(daemon.env)["pid"] == daemon.pid


def test_typed_through_needs_no_model(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(tmp_path, script="turn total", settings=PATIENT) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, "def f(total):\n    re")
        assert until_answered(editor, (1, 6)) == "turn total"
        for version, letter in enumerate("turn", start=2):
            at = (1, 4 + version)
            editor.change(URI, version, (at, at, letter))
            expected = "turn total"[version - 1 :]
            assert [i["insertText"] for i in editor.complete(URI, (1, 5 + version))] == [expected]
        requests = status(daemon.env)["requests"]
        assert requests["typed_through"] >= 4


def test_typing_on_joins_the_generation_that_agrees(tmp_path: Path) -> None:
    """The second prompt goes on after what the first generation wrote; nothing is written twice."""
    rules = {"<|fim_middle|>    ret": "urn total"}
    with (
        ScriptedDaemon(
            tmp_path,
            script="turn total",
            rules=rules,
            delay_per_token_ms=150,
            settings=PATIENT,
            record_tokens=True,
        ) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, "def f(total):\n    re")
        until(lambda: status(daemon.env)["state"] == "ready" and status(daemon.env)["clients"] == 1)
        first = editor.ask(URI, (1, 6))
        until(lambda: len(daemon.records("token")) == len(" ret"))
        editor.change(URI, 2, ((1, 6), (1, 6), "t"))
        assert editor.complete(URI, (1, 7))[0]["insertText"] == "urn total"
        assert "error" in editor.response(first)
        assert status(daemon.env)["requests"]["joined"] == 1
        assert [record["emitted"] for record in daemon.records("end")][:2] == [len(" ret"), len("urn total")]


@pytest.mark.parametrize("end", ["killed", "shutdown", "stdin closed"])
def test_a_window_that_ends_in_a_request_leaves_the_daemon_without_it(tmp_path: Path, end: str) -> None:
    """H19 with the real daemon: it outlives the front and drops the session and the generation."""
    with ScriptedDaemon(tmp_path, script="x" * 50, delay_per_token_ms=500, settings=PATIENT) as daemon:
        with LspProcess(daemon.env) as editor:
            editor.initialize()
            editor.open(URI, "abc")
            until(lambda: status(daemon.env)["clients"] == 1)
            editor.ask(URI, (0, 3))
            until(lambda: daemon.starts() == 1)
            match end:
                case "killed":
                    editor.kill()
                case "shutdown":
                    editor.shutdown()
                case _:
                    editor.close_stdin()
            editor.exit_code()
        until(lambda: status(daemon.env)["clients"] == 0)
        until(lambda: bool(daemon.records("end")))
        assert daemon.records("end")[0]["finish"] == "cancelled"
        assert daemon.living() == [daemon.pid]


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.toy_checkpoints import build, write_model

    return write_model(tmp_path_factory.mktemp("toy"), build())


@pytest.fixture
def model(tmp_path: Path, checkpoint: Path) -> Path:
    """A copy that a test may spoil."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def env(tmp_path: Path, model: Path) -> Iterator[dict[str, str]]:
    """What a front needs to start the real daemon on the toy model; the daemon is ended at last."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f'[daemon]\nmodel = "{model}"\ndraft = "none"\nquantisation = "fp32"\nthreads = 1\n'
    )
    with ScriptedDaemon(home, start=False).ended_at_last():
        yield own_folder_environment(home)


def spoil(model: Path, how: str) -> str:
    """What the message must name."""
    match how:
        case "cut weights":
            weights = model / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[:1000])
            return "model.safetensors"
        case "empty config":
            (model / "config.json").write_text("{}")
            return "config.json"
        case "no tokenizer":
            (model / "tokenizer.json").unlink()
            return "tokenizer.json"
        case _:
            raise ValueError(how)


@pytest.mark.parametrize("how", ["cut weights", "empty config", "no tokenizer"])
def test_broken_model_files_are_said_once_and_mended_by_reload(
    env: dict[str, str], model: Path, checkpoint: Path, how: str
) -> None:
    """H30 a, b, c with the real loader, from the editor's side."""
    named = spoil(model, how)
    with LspProcess(env) as editor:
        editor.initialize()
        editor.open(URI, "x = 1\nprint(")
        message = editor.notified("window/showMessage")["message"]
        assert named in message
        for _ in range(5):
            assert editor.complete(URI, (1, 6)) == []
        found = status(env)
        assert (found["state"], found["loads"]) == ("failed", 1)
        assert len(editor.notifications("window/showMessage")) == 1
        for file in checkpoint.iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        subprocess.run([sys.executable, "-P", "-m", "copilotd", "reload"], env=env, check=True, timeout=120)
        assert status(env)["pid"] == found["pid"]
        assert status(env)["state"] == "ready"
        editor.change(URI, 2, "y = 1\nprint(")
        editor.complete(URI, (1, 6))
        assert status(env)["target_steps"] > 0
        assert len(editor.notifications("window/showMessage")) == 1


def test_a_draft_that_cannot_be_loaded_is_done_without(
    env: dict[str, str], tmp_path: Path, model: Path
) -> None:
    """H30 e: said in status, and the target goes on alone."""
    settings = tmp_path / "home" / "config.toml"
    settings.write_text(settings.read_text().replace('draft = "none"', f'draft = "{tmp_path / "nowhere"}"'))
    with LspProcess(env) as editor:
        editor.initialize()
        editor.open(URI, "x = 1\nprint(")
        editor.notified("window/showMessage")
        found = status(env)
        assert (found["state"], found["draft"]) == ("ready", "")


def test_the_front_starts_the_daemon_and_starts_it_again_after_kill_9(env: dict[str, str]) -> None:
    with LspProcess(env) as editor:
        editor.initialize()
        editor.open(URI, "x = 1\nprint(")
        for round_ in range(2):
            end = time.monotonic() + 60
            while (found := status(env))["state"] != "ready":
                assert time.monotonic() < end
                editor.complete(URI, (1, 6))
                time.sleep(0.1)
            editor.change(URI, 2 + round_, f"y{round_} = 1\nprint(")
            editor.complete(URI, (1, 6))
            assert status(env)["target_steps"] > 0
            os.kill(found["pid"], signal.SIGKILL)
        assert editor.notifications("window/showMessage") == []


def test_nothing_in_a_workspace_is_imported_or_read_as_settings(env: dict[str, str], tmp_path: Path) -> None:
    """The editor stands in a hostile folder; so do the front at first and whoever starts the daemon."""
    workspace, ran = tmp_path / "workspace", tmp_path / "ran"
    workspace.mkdir()
    for name in (
        "copilotd",
        "msgspec",
        "torch",
        "asyncio",
        "json",
        "sitecustomize",
        "usercustomize",
        "pygls",
    ):
        (workspace / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    for name in ("config.toml", "copilotd.toml", ".copilotd.toml", "pyproject.toml"):
        (workspace / name).write_text('[daemon]\nmodel = "/evil"\n[tool.copilotd.daemon]\nmodel = "/evil"\n')
    with LspProcess(env, cwd=workspace) as editor:
        editor.initialize(workspaceFolders=[{"uri": workspace.as_uri(), "name": "w"}])
        editor.open((workspace / "a.py").as_uri(), "x = 1\n")
        until(lambda: status(env)["state"] == "ready", 60)
        found = status(env)
        assert found["target"] == "model"
        assert Path(f"/proc/{found['pid']}/cwd").readlink() == tmp_path / "home" / "state"
        assert Path(f"/proc/{editor.process.pid}/cwd").readlink() != workspace
    assert not ran.exists()
