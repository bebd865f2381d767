"""Requests that are cancelled, overtaken and met by a lost daemon (cases H16, H19; issue 4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from copilotd import wire
from tests.support.fake_daemon import Asked, insert
from tests.support.lsp_driver import LspProcess, position
from tests.support.window import Window

URI = "file:///w/a.py"


def silent(asked: Asked) -> None:
    """A model inside one long generation."""


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with Window(tmp_path, insert("x")) as window:
        yield window


@pytest.fixture
def editor(window: Window) -> LspProcess:
    editor = window.editor()
    editor.open(URI, "abc\n")
    return editor


def asking(number: int | str) -> dict:
    params = {"textDocument": {"uri": URI}, "position": position((0, 2)), "context": {"triggerKind": 2}}
    return {"id": number, "method": "textDocument/inlineCompletion", "params": params}


def cancelling(number: int | str) -> dict:
    return {"method": "$/cancelRequest", "params": {"id": number}}


def test_a_storm_of_cancelled_requests(window: Window, editor: LspProcess) -> None:
    storm = [message for number in range(10, 310) for message in (asking(number), cancelling(number))]
    strays = [cancelling(number) for number in (12345, "abc", 10)]
    editor.send(*storm, asking(999), *strays)
    assert editor.response(999)["result"][0]["insertText"] == "x"
    for number in range(10, 310):
        [response] = editor.wait(lambda n=number: editor.responses(n))
        assert response["error"]["code"] == -32800
    assert len(window.daemon.asked) <= 3
    assert editor.complete(URI, (0, 1))
    assert not editor.notifications("window/showMessage")
    assert len(editor.responses(10)) == len(editor.responses(999)) == 1


def test_a_cancel_reaches_the_daemon(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = silent
    number = editor.ask(URI, (0, 2))
    asked = window.daemon.wait(lambda: window.daemon.asked)[0]
    editor.send(cancelling(number))
    assert editor.response(number)["error"]["code"] == -32800
    assert window.daemon.wait(lambda: window.daemon.of(wire.Cancel)) == [wire.Cancel(asked.request.id)]


def test_a_cancel_that_comes_with_its_request_reaches_the_daemon_too(
    window: Window, editor: LspProcess
) -> None:
    window.daemon.answer = silent
    editor.send(asking(77), cancelling(77))
    assert editor.response(77)["error"]["code"] == -32800
    asked = window.daemon.wait(lambda: window.daemon.asked)[0]
    assert window.daemon.wait(lambda: window.daemon.of(wire.Cancel)) == [wire.Cancel(asked.request.id)]
    assert b"never awaited" not in editor.stderr


def test_a_newer_request_overtakes_the_older(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = silent
    first = editor.ask(URI, (0, 1))
    window.daemon.wait(lambda: window.daemon.asked)
    window.daemon.answer = insert("new")
    second = editor.ask(URI, (0, 2))
    assert editor.response(second)["result"][0]["insertText"] == "new"
    assert editor.response(first)["error"]["code"] == -32800


def test_an_edit_ends_the_request_for_the_older_text(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = silent
    number = editor.ask(URI, (0, 2))
    asked = window.daemon.wait(lambda: window.daemon.asked)[0]
    editor.change(URI, 2, ((0, 2), (0, 2), "!"))
    assert editor.response(number)["error"]["code"] == -32800
    window.daemon.push(wire.Answer(asked.request.id, (wire.Item("late", 2, 2, "late"),)))
    window.daemon.answer = insert("now")
    assert editor.complete(URI, (0, 3))[0]["insertText"] == "now"
    assert len(editor.responses(number)) == 1


def test_a_request_followed_by_an_edit_in_one_breath_asks_nothing(window: Window, editor: LspProcess) -> None:
    change = {
        "method": "textDocument/didChange",
        "params": {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "other"}]},
    }
    editor.send(asking("old"), change, asking("new"))
    assert editor.response("old")["error"]["code"] == -32800
    assert editor.response("new")["result"]
    assert [asked.prefix for asked in window.daemon.asked] == ["ot"]


def test_what_the_daemon_calls_superseded_is_cancelled(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = lambda asked: wire.Answer(asked.request.id, (), "superseded")
    assert editor.response(editor.ask(URI, (0, 1)))["error"]["code"] == -32800


def test_a_loading_daemon_answers_empty(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = lambda asked: wire.Answer(asked.request.id, (), "empty", "loading")
    assert editor.complete(URI, (0, 1)) == []
    assert editor.notified("copilotd/didChangeStatus", lambda status: status["reason"] == "loading")


def test_an_answer_of_nonsense_is_no_popup(window: Window, editor: LspProcess) -> None:
    window.daemon.answer = lambda asked: wire.Answer(asked.request.id, (wire.Item("i", -5, 10**9, "y"),))
    response = editor.response(editor.ask(URI, (0, 1)))
    assert "error" not in response
    assert not editor.notifications("window/showMessage")


# ---- a daemon that is lost -------------------------------------------------------------------------------


def test_the_daemon_dies_in_the_middle_of_a_request(window: Window, editor: LspProcess) -> None:
    editor.open("file:///w/b.py", "unsaved 🎉")
    editor.change("file:///w/b.py", 2, ((0, 10), (0, 10), "!"))
    editor.complete("file:///w/b.py", (0, 0))
    window.daemon.answer = silent
    pending = editor.ask(URI, (0, 2))
    window.daemon.wait(lambda: len(window.daemon.asked) == 2)
    window.daemon.die()
    response = editor.response(pending)
    assert response["result"] == []
    window.daemon.answer = insert("again")
    window.daemon.listen()
    window.daemon.wait(lambda: window.daemon.connections == 2)
    assert editor.complete(URI, (0, 2))[0]["insertText"] == "again"
    assert window.daemon.documents() == {URI: "abc\n", "file:///w/b.py": "unsaved 🎉!"}
    assert not editor.notifications("window/showMessage")


def test_a_request_during_the_restart_waits_for_it(window: Window, tmp_path: Path) -> None:
    """The socket is there but nobody accepts yet: connected, greeted late."""
    editor = window.editor()
    editor.open(URI, "abc\n")
    editor.complete(URI, (0, 1))
    window.daemon.die()
    window.daemon.listen()
    assert editor.complete(URI, (0, 2))[0]["insertText"] == "x"


def test_no_daemon_is_told_once_and_requests_stay_empty(window: Window) -> None:
    window.daemon.die()
    editor = window.editor(start=False)
    editor.initialize()
    editor.open(URI, "abc")
    told = editor.notified("window/showMessage")
    assert "copilotd" in told["message"]
    assert told["type"] == 2
    for _ in range(5):
        assert editor.complete(URI, (0, 1)) == []
    assert editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "failed")
    window.daemon.listen()
    window.daemon.wait(lambda: window.daemon.connections == 1)
    assert editor.complete(URI, (0, 1))[0]["insertText"] == "x"
    assert len(editor.notifications("window/showMessage")) == 1


def test_a_daemon_that_leaves_on_purpose_is_fetched_by_the_next_request(
    window: Window, editor: LspProcess
) -> None:
    editor.complete(URI, (0, 1))
    window.daemon.push(wire.Done("stopped"))
    window.daemon.die()
    window.daemon.listen()
    assert editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "paused")
    assert window.daemon.connections == 1
    assert editor.complete(URI, (0, 1))[0]["insertText"] == "x"
    assert window.daemon.connections == 2


def test_a_stream_that_is_no_daemons_is_given_up(window: Window, editor: LspProcess) -> None:
    editor.complete(URI, (0, 1))

    def nonsense(asked: Asked) -> wire.Answer:
        writer = next(iter(window.daemon._writers))
        writer.write(b"\xff\xff\xff\xff")
        return wire.Answer(asked.request.id)

    window.daemon.answer = nonsense
    assert editor.complete(URI, (0, 1)) == []
    window.daemon.answer = insert("x")
    window.daemon.wait(lambda: window.daemon.connections == 2)
    assert editor.complete(URI, (0, 1))


def test_explain(window: Window, editor: LspProcess) -> None:
    packed = msgspec.msgpack.encode({"reasons": [{"stage": "stop", "text": "line", "ms": 1.0}]})
    window.daemon.answer = lambda asked: wire.Answer(
        asked.request.id, (wire.Item("i", 1, 1, "text"),), explanation=packed
    )
    found = editor.call("copilotd/explain", {"uri": URI, "position": position((0, 1))})
    assert found["items"] == ["text"]
    assert found["explanation"]["reasons"][0]["stage"] == "stop"
    assert window.daemon.asked[-1].request.explain
    assert editor.call("copilotd/explain", {"uri": "file:///none", "position": position((0, 1))}) is None
