"""What a session makes of its front's messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd import wire
from copilotd.config import Loaded, SessionSettings, Settings
from copilotd.daemon.session import Refused, Session

URI = "file:///home/me/shop/src/cart%20list.ts"


def session(**settings: object) -> Session:
    made = Session("c1", Loaded())
    folders = (wire.Folder("/home/me/shop"), wire.Folder("/home/me"))
    made.configure(wire.Configure(SessionSettings(**settings), folders))  # type: ignore[arg-type]
    made.open(wire.Open(URI, "typescript", 1, "let a = 1\n"))
    return made


def ask(version: int = 1, offset: int = 4, uri: str = URI) -> wire.Complete:
    return wire.Complete(id=1, uri=uri, version=version, offset=offset)


def test_a_request_sees_its_document_its_folder_and_its_settings() -> None:
    asked = session(max_latency_ms=7).ask(ask())
    assert (asked.text, asked.offset, asked.language) == ("let a = 1\n", 4, "typescript")
    assert (asked.path, asked.repository) == ("src/cart list.ts", "shop")
    assert asked.settings.max_latency_ms == 7


def test_splices_apply_one_after_the_other_and_leave_older_requests_alone() -> None:
    made = session()
    before = made.ask(ask())
    made.change(wire.Change(URI, 2, (wire.Splice(4, 5, "price"), wire.Splice(12, 13, "22"))))
    assert made.ask(ask(version=2)).text == "let price = 22\n"
    assert before.text == "let a = 1\n"


@pytest.mark.parametrize("splice", [wire.Splice(0, 99, ""), wire.Splice(5, 4, ""), wire.Splice(-1, 2, "")])
def test_a_splice_outside_the_text_breaks_the_connection(splice: wire.Splice) -> None:
    with pytest.raises(wire.FrameError):
        session().change(wire.Change(URI, 2, (splice,)))


def test_a_change_of_what_is_not_open_breaks_the_connection() -> None:
    with pytest.raises(wire.FrameError):
        session().change(wire.Change("file:///other", 2, ()))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (ask(version=2), "stale"),
        (ask(offset=11), "stale"),
        (ask(offset=-1), "stale"),
        (ask(uri="file:///other"), "unopened"),
    ],
)
def test_a_request_for_another_text_is_refused(message: wire.Complete, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        session().ask(message)


@pytest.mark.parametrize(
    "settings",
    [
        {"enabled": False},
        {"languages_off": ("sql", "typescript")},
        {"globs_off": ("src/",)},
        {"globs_off": ("*.md", "cart*.ts")},
    ],
)
def test_what_is_switched_off_gets_nothing(settings: dict[str, object]) -> None:
    with pytest.raises(Refused, match="off"):
        session(**settings).ask(ask())


def test_a_folder_has_its_own_settings() -> None:
    made = session()
    off = SessionSettings(enabled=False)
    made.configure(wire.Configure(SessionSettings(), (wire.Folder("/home/me/shop", off),)))
    with pytest.raises(Refused, match="off"):
        made.ask(ask())
    made.configure(wire.Configure(SessionSettings(), (wire.Folder("/home/me/shop2", off),)))
    assert made.ask(ask()).repository == ""


def test_a_locked_key_keeps_the_systems_value() -> None:
    off = Settings(session=SessionSettings(enabled=False))
    made = session()
    made.reconfigured(Loaded(off, locked=frozenset({"session.enabled"})))
    with pytest.raises(Refused, match="off"):
        made.ask(ask())


def test_a_pattern_that_is_none_is_reported_and_passed_over() -> None:
    made = session()
    said = made.configure(wire.Configure(SessionSettings(globs_off=("!", "*.md"))))
    assert len(said) == 1
    assert "'!'" in said[0]
    assert made.ask(ask()).path == "cart list.ts"


def test_a_workspace_that_is_a_secret_folder_gets_nothing() -> None:
    made = Session("c1", Loaded())
    made.configure(wire.Configure(SessionSettings(), (wire.Folder("/home/me/.ssh"),)))
    made.open(wire.Open("file:///home/me/.ssh/config", "", 1, "Host x"))
    with pytest.raises(Refused, match="secret"):
        made.ask(ask(uri="file:///home/me/.ssh/config", offset=1))


def test_a_link_to_a_secret_file_is_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / "plain.py").write_text("A=1")
    made = session()
    for name, target in (("ok.py", ".env"), ("fine.py", "plain.py")):
        (tmp_path / name).symlink_to(target)
        made.open(wire.Open((tmp_path / name).as_uri(), "python", 1, "A=1"))
    with pytest.raises(Refused, match="secret"):
        made.ask(ask(uri=(tmp_path / "ok.py").as_uri(), offset=1))
    assert made.ask(ask(uri=(tmp_path / "fine.py").as_uri(), offset=1))


def test_a_name_that_is_no_utf8_goes_without_those_bytes() -> None:
    made = session()
    made.open(wire.Open("file:///home/me/shop/caf%E9.py", "python", 1, "x"))
    assert made.ask(ask(uri="file:///home/me/shop/caf%E9.py", offset=1)).path == "caf.py"


def test_paused_and_closed() -> None:
    made = session()
    made.paused = True
    with pytest.raises(Refused, match="paused"):
        made.ask(ask())
    made.paused = False
    made.close(URI)
    with pytest.raises(Refused, match="unopened"):
        made.ask(ask())


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("untitled:Untitled-1", "Untitled-1"),
        ("vscode-remote://ssh-remote%2Bbox/home/me/shop/a.py", "a.py"),
        ("http://[broken", "[broken"),
    ],
)
def test_any_uri_has_a_path(uri: str, path: str) -> None:
    made = session()
    made.open(wire.Open(uri, "python", 1, "x"))
    assert made.ask(ask(uri=uri, offset=1)).path == path
