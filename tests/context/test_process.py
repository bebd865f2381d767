"""The daemon's side of the context process, without the process."""

from __future__ import annotations

from pathlib import Path

from copilotd.context.messages import Snippet, Snippets, Visible
from copilotd.context.process import ContextProcess


def test_an_answer_to_a_session_that_has_ended_is_not_kept(tmp_path: Path) -> None:
    context = ContextProcess(tmp_path, lambda text: None)
    late = Snippets("c1", "/w/a.py", (Snippet("b.py", 1, "x = 1", "definition"),))
    context.buffer("c1", "/w/a.py", "python", "x")
    context._receive(late)
    context._receive(Visible("c1", 1, 1, ()))
    assert context.snippets("c1", "/w/a.py")
    context.leave("c1")
    context._receive(late)
    context._receive(Visible("c1", 1, 1, ()))
    assert not context.snippets("c1", "/w/a.py")
    assert not context._views
