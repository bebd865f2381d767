"""What the daemon holds follows the document, whole or through a window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilotd.lsp import document as document_module
from copilotd.lsp import mirror as mirror_module
from copilotd.lsp.document import Document, Edit, difference
from copilotd.lsp.mirror import Mirror, around
from copilotd.lsp.text import Splice, Text

words = st.text("ab\n🎉", max_size=12)


@given(old=words, new=words)
def test_the_difference_turns_one_text_into_the_other(old: str, new: str) -> None:
    start, end, text = difference(old, new)
    assert old[:start] + text + old[end:] == new
    assert not (text and old[start:end] and (text[0] == old[start] or text[-1] == old[end - 1]))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mirror_module, document_module):
        monkeypatch.setattr(module, "WHOLE", 100)
    monkeypatch.setattr(mirror_module, "WINDOW", 40)
    monkeypatch.setattr(mirror_module, "MARGIN", 8)


@pytest.mark.usefixtures("small_limits")
@given(
    content=st.text("abc\n", max_size=300),
    steps=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 60), words, st.integers(0, 400)), max_size=12
    ),
)
def test_the_daemons_copy_is_always_a_part_of_the_text(
    content: str, steps: list[tuple[int, int, str, int]]
) -> None:
    document = Document("u", "l", 1, content, "utf-16")
    text, copy = content, None
    if opened := document.opened():
        copy = opened.text
    for version, (start, length, new, cursor) in enumerate(steps, start=2):
        start = min(start, len(text))
        end = min(len(text), start + length)
        edit = Edit(document.text.position(start), document.text.position(end), new)
        change = document.change(version, [edit])
        text = text[:start] + new + text[end:]
        if change:
            assert copy is not None
            for splice in change.splices:
                copy = copy[: splice.start] + splice.text + copy[splice.end :]
        elif opened := document.opened():
            copy = opened.text
        cursor = min(cursor, len(text))
        if opened := document.opened(cursor):
            copy = opened.text
        assert copy is not None
        at = document.to_daemon(cursor)
        assert document.from_daemon(at) == cursor
        assert text[:cursor].endswith(copy[:at])
        assert text[cursor:].startswith(copy[at:])
        assert at >= 8 or copy[:at] == text[:cursor]
        assert len(copy) - at >= 8 or copy[at:] == text[cursor:]
        assert len(copy) <= 140


@pytest.mark.usefixtures("small_limits")
def test_a_window_is_cut_at_line_starts_where_there_are_some() -> None:
    lines = Text("\n".join("line" for _ in range(100)))
    start, end = around(lines, 250)
    assert start % 5 == 0
    assert end % 5 == 0
    assert start == 230
    assert end == 270
    assert around(Text("x" * 500), 250) == Mirror(230, 270)


def test_an_edit_across_the_edge_loses_the_window() -> None:
    window = Mirror(10, 20)
    assert window.after(Splice(0, 5, "")) == (Mirror(5, 15), None)
    assert window.after(Splice(25, 30, "xx")) == (window, None)
    assert window.after(Splice(12, 14, "xyz")) == (Mirror(10, 21), Splice(2, 4, "xyz"))
    assert window.after(Splice(5, 12, "")) is None
    assert window.after(Splice(15, 25, "")) is None
