"""Alternatives in real Neovim, with the real front and daemon; the model draws what it is told."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.editors import requests
from tests.support.neovim import Neovim
from tests.support.scripted import ScriptedDaemon

BODY = "(a, b):\n    return a + b"
OTHER = "(*numbers):\n    return sum(numbers)"


def test_a_wish_brings_others_and_keys_go_through_them(
    neovim: Callable[..., Neovim], daemon: Callable[..., ScriptedDaemon]
) -> None:
    model = daemon(script=BODY, samples=[BODY, OTHER])
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<M-\\>")
    editor.until(lambda: len(model.records("start")) >= 3, "nothing drawn")
    editor.settled()
    editor.keys("<M-]>")
    assert editor.ghost(OTHER + " (2/2)")
    editor.keys("<M-[>")
    assert editor.ghost(BODY + " (1/2)")
    editor.keys("<M-]>")
    assert editor.ghost(OTHER + " (2/2)")
    editor.keys("<Tab>")
    editor.until(lambda: editor.text().endswith("sum(numbers)"), "not taken")
    assert editor.until(lambda: requests(model)["accepted"] == 1, "not reported")
    assert editor.messages() == ""
