"""Alternatives over stdio: the real front, the real daemon, a model that draws what it is told."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.editors import requests
from tests.support.lsp_driver import LspProcess, Message
from tests.support.scripted import ScriptedDaemon

URI = "file:///w/sums.py"
TEXT = "def add(a, b):\n    return "
END = (1, 11)
PATIENT = "[session]\nmax_latency_ms = 0\n"


def by_hand(editor: LspProcess) -> list[Message]:
    items: list[Message] = editor.response(editor.ask(URI, END, invoked=True))["result"]
    return items


def test_three_items_each_of_which_can_be_taken_and_typed(tmp_path: Path) -> None:
    with (
        ScriptedDaemon(tmp_path, script="a + b", samples=["a - b", "a + b", "b"], settings=PATIENT) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, TEXT)
        assert [item["insertText"] for item in editor.complete(URI, END)] == ["a + b"]
        items = by_hand(editor)
        assert [item["insertText"] for item in items] == ["a + b", "a - b", "b"]
        assert len({item["command"]["arguments"][0] for item in items}) == 3
        editor.call("workspace/executeCommand", items[1]["command"])
        assert requests(daemon)["accepted"] == 1
        before = requests(daemon)["typed_through"]
        editor.change(URI, 2, (END, END, "a -"))
        [typed] = editor.complete(URI, (1, 14))
        assert typed["insertText"] == " b"
        assert requests(daemon)["typed_through"] == before + 1


def test_a_cancel_in_the_middle_of_drawing(tmp_path: Path) -> None:
    """What was shown before comes again at once; the draw that was cut short leaves nothing behind."""
    with (
        ScriptedDaemon(
            tmp_path, script="a + b", samples=["never " * 30], delay_per_token_ms=20, settings=PATIENT
        ) as daemon,
        LspProcess(daemon.env) as editor,
    ):
        editor.initialize()
        editor.open(URI, TEXT)
        editor.complete(URI, END)
        starts = daemon.starts()
        number = editor.ask(URI, END, invoked=True)
        while daemon.starts() == starts:
            time.sleep(0.01)
        editor.notify("$/cancelRequest", {"id": number})
        assert editor.response(number)["error"]["code"] == -32800
        assert [item["insertText"] for item in editor.complete(URI, END)] == ["a + b"]
