"""Settings, folders, commands and status of a window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copilotd import wire
from copilotd.config import SessionSettings
from tests.support.fake_daemon import insert
from tests.support.lsp_driver import NO_ANSWER, LspProcess
from tests.support.window import Window

URI = "file:///w/a.py"
PULLS = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with Window(tmp_path, insert("🎉x")) as window:
        yield window


def settings(window: Window) -> SessionSettings:
    found: SessionSettings = window.daemon.of(wire.Configure)[-1].settings
    return found


def configured(window: Window, **expected: Any) -> None:
    def holds() -> bool:
        return bool(window.daemon.of(wire.Configure)) and all(
            getattr(settings(window), key) == value for key, value in expected.items()
        )

    window.daemon.wait(holds)


def warnings(editor: LspProcess) -> list[str]:
    return [message["message"] for message in editor.notifications("window/showMessage")]


def test_what_asks_for_nothing_is_kept_among_the_messages_and_not_shown(window: Window) -> None:
    editor = window.editor()
    for _ in range(2):
        window.daemon.push(wire.Notice("log", "no watches left: raise the limit"))
    window.daemon.push(wire.Notice("info", "shown"))
    editor.notified("window/showMessage")
    assert [m["message"] for m in editor.notifications("window/logMessage")] == [
        "no watches left: raise the limit"
    ]
    assert [m["message"] for m in editor.notifications("window/showMessage")] == ["shown"]


def test_settings_from_initialize_and_from_changes(window: Window) -> None:
    options = {"copilotd": {"multiline": "never", "languages_off": ["markdown"]}}
    editor = window.editor(initialize={"initializationOptions": options})
    configured(window, multiline="never", languages_off=("markdown",), max_new_tokens=128)
    change = {"settings": {"copilotd": {"max_new_tokens": 9}}}
    editor.notify("workspace/didChangeConfiguration", change)
    configured(window, multiline="never", max_new_tokens=9)
    editor.notify("workspace/didChangeConfiguration", {"settings": None})
    configured(window, multiline="never", max_new_tokens=128)
    assert warnings(editor) == []


def test_invalid_values_keep_the_default_and_are_named_once(window: Window) -> None:
    options = {
        "copilotd": {"max_new_tokens": -1, "multiline": "sometimes", "comments": None, "max_latency_ms": 7}
    }
    editor = window.editor(initialize={"initializationOptions": options})
    configured(window, max_new_tokens=128, multiline="auto", comments="on", max_latency_ms=7)
    editor.notify("workspace/didChangeConfiguration", {"settings": {}})
    editor.call("workspace/executeCommand", {"command": "copilotd.resume"})
    said = warnings(editor)
    assert len(said) == 2
    assert "copilotd.max_new_tokens" in said[0]
    assert "copilotd.multiline" in said[1]


def test_daemon_keys_are_not_taken_from_an_editor(window: Window) -> None:
    options = {"copilotd": {"model": "/evil", "enabled": False}}
    editor = window.editor(initialize={"initializationOptions": options})
    configured(window, enabled=False)
    editor.notified("window/showMessage")
    assert len(warnings(editor)) == 1
    assert "copilotd.model" in warnings(editor)[0]


def test_the_users_own_settings_hold_beneath_the_editors(window: Window, tmp_path: Path) -> None:
    home = Path(window.env["COPILOTD_HOME"])
    home.mkdir(parents=True)
    (home / "config.toml").write_text('[session]\nmultiline = "never"\nmax_new_tokens = 7\n')
    window.editor(initialize={"initializationOptions": {"copilotd": {"max_new_tokens": 8}}})
    configured(window, multiline="never", max_new_tokens=8)


def test_unreadable_settings_of_the_user_do_not_keep_the_front_down(window: Window) -> None:
    home = Path(window.env["COPILOTD_HOME"])
    home.mkdir(parents=True)
    (home / "config.toml").write_text("no toml at all [")
    editor = window.editor()
    editor.open(URI, "a")
    assert editor.complete(URI, (0, 1))


def test_configuration_is_pulled_for_each_folder(window: Window) -> None:
    folders = [{"uri": "file:///w/one", "name": "1"}, {"uri": "file:///w/t%C3%A9%20wo/", "name": "2"}]
    answers = {"workspace/configuration": [{"max_new_tokens": 5}, None, {"enabled": False, "trusted": False}]}
    editor = window.editor(answers=answers, initialize={"capabilities": PULLS, "workspaceFolders": folders})
    configured(window, max_new_tokens=5)
    one, two = window.daemon.of(wire.Configure)[-1].folders
    assert (one.path, one.settings, one.trusted) == ("/w/one", None, True)
    assert (two.path, two.trusted) == ("/w/té wo", False)
    assert two.settings == SessionSettings(max_new_tokens=5, enabled=False)
    asked = editor.notifications("workspace/configuration")[0]["items"]
    assert [item.get("scopeUri") for item in asked] == [None, "file:///w/one", "file:///w/t%C3%A9%20wo/"]
    registered = editor.notifications("client/registerCapability")[0]["registrations"][0]
    assert registered["method"] == "workspace/didChangeConfiguration"
    editor.answers["workspace/configuration"] = [{"max_new_tokens": 6}]
    editor.notify("workspace/didChangeConfiguration", {"settings": None})
    configured(window, max_new_tokens=6)


@pytest.mark.parametrize("answer", [None, [None], {}, NO_ANSWER])
def test_configuration_answered_with_nothing_means_defaults(window: Window, answer: object) -> None:
    editor = window.editor(answers={"workspace/configuration": answer}, initialize={"capabilities": PULLS})
    editor.notified("workspace/configuration")
    editor.open(URI, "a")
    assert editor.complete(URI, (0, 1))
    assert settings(window) == SessionSettings()
    assert warnings(editor) == []


def test_folders_come_and_go(window: Window) -> None:
    editor = window.editor(initialize={"rootUri": "file:///w/one"})
    event = {"added": [{"uri": "file:///w/two", "name": ""}, {"uri": "memfs:/x", "name": ""}], "removed": []}
    editor.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    editor.notify(
        "workspace/didChangeWorkspaceFolders", {"event": {"removed": [{"uri": "file:///w/one", "name": ""}]}}
    )
    paths = [("/w/one",), ("/w/one", "/w/two"), ("/w/two",)]
    window.daemon.wait(lambda: len(window.daemon.of(wire.Configure)) == 3)
    found = [tuple(folder.path for folder in m.folders) for m in window.daemon.of(wire.Configure)]
    assert found == paths


def test_accepting_an_item_and_a_part_of_it(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "a")
    [item] = editor.complete(URI, (0, 1))
    name = item["command"]["arguments"][0]
    editor.call(
        "workspace/executeCommand", {"command": "copilotd.didPartiallyAccept", "arguments": [name, 2]}
    )
    editor.call("workspace/executeCommand", {"command": item["command"]["command"], "arguments": [name]})
    accepted = window.daemon.wait(
        lambda: window.daemon.of(wire.Accepted)[1:] and window.daemon.of(wire.Accepted)
    )
    assert accepted == [wire.Accepted(name, 1), wire.Accepted(name, None)], "two UTF-16 units, one character"


def test_pause_is_this_windows_and_survives_a_restart(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "a")
    editor.call("workspace/executeCommand", {"command": "copilotd.pause", "arguments": []})
    assert editor.notified("copilotd/didChangeStatus", lambda status: status["paused"])
    assert editor.complete(URI, (0, 1)) == []
    window.daemon.die()
    window.daemon.listen()
    window.daemon.wait(lambda: len(window.daemon.of(wire.Pause)) == 2)
    editor.call("workspace/executeCommand", {"command": "copilotd.resume"})
    assert editor.complete(URI, (0, 1))


def test_loading_is_shown_as_progress_and_status(window: Window) -> None:
    editor = window.editor(initialize={"capabilities": {"window": {"workDoneProgress": True}}})
    window.daemon.push(wire.State("loading", "tiny, 3 of 9 MB", 1 / 3, "tiny", "cpu"))
    begun = editor.notified("$/progress", lambda params: params["value"]["kind"] == "begin")
    assert editor.notified("$/progress", lambda params: params["value"].get("percentage") == 33)
    window.daemon.push(wire.State("ready", "", None, "tiny", "cpu"))
    ended = editor.notified("$/progress", lambda params: params["value"]["kind"] == "end")
    assert (
        begun["token"] == ended["token"] == editor.notifications("window/workDoneProgress/create")[0]["token"]
    )
    status = editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "ready")
    assert (status["model"], status["device"], status["paused"]) == ("tiny", "cpu", False)


def test_an_editor_without_progress_gets_none(window: Window) -> None:
    editor = window.editor()
    window.daemon.push(wire.State("loading", "tiny", 0.5))
    editor.notified("copilotd/didChangeStatus", lambda status: status["message"] == "tiny")
    assert not editor.notifications("window/workDoneProgress/create")
    assert not editor.notifications("$/progress")


def test_a_notice_is_shown_once(window: Window) -> None:
    editor = window.editor()
    for text in ("no weights: do this", "no weights: do this", "another"):
        window.daemon.push(wire.Notice("error", text))
    editor.notified("window/showMessage", lambda message: message["message"] == "another")
    assert warnings(editor) == ["no weights: do this", "another"]
