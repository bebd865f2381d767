from __future__ import annotations

import pytest

from copilotd.config import Loaded, SessionSettings, Settings
from copilotd.lsp.settings import read, section
from copilotd.lsp.uris import path_of
from copilotd.lsp.workspace import Workspace
from copilotd.wire import Folder

OWN = Loaded(Settings(session=SessionSettings(multiline="never", max_new_tokens=7)))


def test_later_layers_lie_over_earlier_ones_and_all_over_the_users_own() -> None:
    reading = read([{"max_new_tokens": 8, "comments": "off"}, {"max_new_tokens": 9}], OWN)
    assert reading.settings == SessionSettings(multiline="never", max_new_tokens=9, comments="off")
    assert reading.problems == []


@pytest.mark.parametrize("layer", [None, 3, "x", [], {}, {"unheard_of": 1}, {"multiline": None}])
def test_what_is_no_setting_changes_nothing(layer: object) -> None:
    assert read([layer], OWN) == (OWN.settings.session, True, [])


def test_a_bad_value_costs_its_own_key_only() -> None:
    reading = read([{"multiline": "never", "max_new_tokens": "many"}, {"multiline": 4}], Loaded())
    assert reading.settings == SessionSettings()
    assert [problem.split("`")[1] for problem in reading.problems] == [
        "copilotd.max_new_tokens",
        "copilotd.multiline",
    ]


def test_locked_and_daemon_keys_are_refused() -> None:
    own = Loaded(OWN.settings, locked=frozenset({"session.enabled"}))
    reading = read([{"enabled": False, "model": "x", "daemon": {}, "max_new_tokens": 3}], own)
    assert reading.settings == SessionSettings(multiline="never", max_new_tokens=3)
    assert len(reading.problems) == 3


def test_section() -> None:
    assert section({"copilotd": {"a": 1}, "other": 2}) == {"a": 1}
    assert section(None) is section([]) is section({"other": 2}) is None


def test_a_folder_has_settings_of_its_own_only_where_they_differ() -> None:
    workspace = Workspace(Loaded())
    workspace.initial = {"max_new_tokens": 4}
    workspace.change_folders(["file:///a", "file:///b", "file:///a", "http://x/c"], [])
    workspace.by_folder = {"file:///a": {"max_new_tokens": 4}, "file:///b": {"enabled": False}}
    session = SessionSettings(max_new_tokens=4)
    assert workspace.outcome().settings == session
    assert workspace.outcome().folders == (
        Folder("/a"),
        Folder("/b", SessionSettings(max_new_tokens=4, enabled=False)),
    )
    workspace.change_folders([], ["file:///a"])
    assert [folder.path for folder in workspace.outcome().folders] == ["/b"]


def test_a_folder_has_many_spellings() -> None:
    workspace = Workspace(Loaded())
    workspace.change_folders(["file:///w/caf%C3%A9/", "file:///w/café", "file:///w/b"], [])
    assert [folder.path for folder in workspace.outcome().folders] == ["/w/café", "/w/b"]
    workspace.change_folders([], ["file:///w/caf%c3%a9"])
    assert [folder.path for folder in workspace.outcome().folders] == ["/w/b"]


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///w/a%20b", "/w/a b"),
        ("file:///w/100%25.py", "/w/100%.py"),
        ("file:///w/x%23y.py", "/w/x#y.py"),
        ("file:///w/x#y?z.py", "/w/x#y?z.py"),
        ("file:///w/%E5%90%8D.py", "/w/名.py"),
        ("file://localhost/w/", "/w"),
        ("file:///", "/"),
        ("file://server/share", None),
        ("untitled:x", None),
        ("file:///%FF", None),
        ("file://[", None),
        ("", None),
    ],
)
def test_paths(uri: str, path: str | None) -> None:
    assert path_of(uri) == path
