"""What the daemon gets is what stands in the editor, to the last unit (cases H01, H02, H03, H17, H18, H21)."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilotd import wire
from tests.support.fake_daemon import insert
from tests.support.window import Window

URI = "file:///w/a.py"


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with Window(tmp_path) as window:
        yield window


DOCUMENTS = [
    ('msg = "🎉🎉 done"; pri', "nt_it(msg)\n", {"utf-16": (0, 22), "utf-8": (0, 26), "utf-32": (0, 20)}),
    ('tag = "🧪🧪"\nprint(tag, en', 'd="")\n', {"utf-16": (1, 13), "utf-8": (1, 13), "utf-32": (1, 13)}),
    (
        'family = "👨‍👩‍👧"; fam',
        "ily_size(family)\n",
        {"utf-16": (0, 24), "utf-8": (0, 34), "utf-32": (0, 21)},
    ),
    ("cafe\u0301 = 1; caf", "e_total = 2\n", {"utf-16": (0, 14), "utf-8": (0, 15), "utf-32": (0, 14)}),
    ('price = "数量"; pri', "nt(price)\n", {"utf-16": (0, 17), "utf-8": (0, 21), "utf-32": (0, 17)}),
]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_columns_are_counted_in_the_announced_encoding(window: Window, encoding: str) -> None:
    window.daemon.answer = insert("\nx")
    editor = window.editor(start=False)
    result = editor.initialize(capabilities={"general": {"positionEncodings": [encoding]}})
    assert result["capabilities"]["positionEncoding"] == encoding
    for number, (prefix, suffix, cursors) in enumerate(DOCUMENTS):
        uri = f"file:///w/{number}.py"
        editor.open(uri, prefix + suffix)
        line, column = cursors[encoding]
        [item] = editor.complete(uri, (line, column))
        asked = window.daemon.asked[-1]
        assert (asked.prefix, asked.suffix) == (prefix, suffix)
        cursor = {"line": line, "character": column}
        assert item["range"] == {"start": cursor, "end": cursor}


def test_utf16_is_preferred_whatever_stands_first(window: Window) -> None:
    editor = window.editor(start=False)
    offered = {"general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]}}
    assert editor.initialize(capabilities=offered)["capabilities"]["positionEncoding"] == "utf-16"


def test_a_cursor_between_two_surrogates(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, 'x = "🚀"\n')
    assert window.seen(editor, URI, (0, 6)) == ('x = "', '🚀"\n')
    assert window.seen(editor, URI, (0, 7)) == ('x = "🚀', '"\n')


def test_a_lone_surrogate_costs_one_unit_and_nothing_else(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "a\ud83d")
    assert window.seen(editor, URI, (0, 2)) == ("a\ufffd", "")
    editor.change(URI, 2, ((0, 2), (0, 2), "\ude80b"))
    assert window.seen(editor, URI, (0, 4)) == ("a🚀b", "")


@pytest.mark.parametrize("odd", ["\f", "\u2028", "\u2029", "\x85", "\v", "\x1c"])
def test_only_newline_and_carriage_return_end_a_line(window: Window, odd: str) -> None:
    text = f"import a\n{odd}\ndef f():\n    ret"
    editor = window.editor()
    editor.open(URI, text)
    assert window.seen(editor, URI, (3, 7)) == (text, "")
    editor.change(URI, 2, ((3, 7), (3, 7), "urn 1"))
    assert window.seen(editor, URI, (3, 12)) == (text + "urn 1", "")


def test_crlf_and_mixed_line_ends(window: Window) -> None:
    window.daemon.answer = insert("acc += x\r\n        print(acc)")
    editor = window.editor()
    text = "def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        \r\n    return acc\r\n"
    editor.open(URI, text)
    [item] = editor.complete(URI, (3, 8))
    assert item["insertText"] == "acc += x\n        print(acc)"
    assert window.daemon.asked[-1].prefix == text[: text.index("\r\n    return")]
    assert window.seen(editor, URI, (1, 99)) == (
        "def total(xs):\r\n    acc = 0",
        text[text.index("\r\n    for") :],
    )
    editor.open("file:///w/mixed.py", "a = 1\r\nb = 2\nc = 3\r\rd")
    assert window.seen(editor, "file:///w/mixed.py", (1, 5)) == ("a = 1\r\nb = 2", "\nc = 3\r\rd")
    assert window.seen(editor, "file:///w/mixed.py", (4, 0)) == ("a = 1\r\nb = 2\nc = 3\r\r", "d")


def test_documents_without_a_file(window: Window, tmp_path: Path) -> None:
    editor = window.editor()
    before = sorted(tmp_path.rglob("*"))
    assert editor.complete("file:///nope/missing.py", (0, 0)) == []
    assert not window.daemon.asked
    for uri, text, place, prefix in [
        ("untitled:Untitled-1", "def twice(x):\n    return ", (1, 11), "def twice(x):\n    return "),
        ("file:///w/empty.py", "", (0, 0), ""),
        ("file:///w/empty.py", "", (3, 7), ""),
        (
            "vscode-notebook-cell:/w/n.ipynb#W0sZmlsZQ%3D%3D",
            "import math\nmath.",
            (1, 5),
            "import math\nmath.",
        ),
        ("scp://dev@host//srv/a.py", "x = 1\n", (0, 999), "x = 1"),
        ("file:///w/a.py", "abc\ndef\n", (50, 0), "abc\ndef\n"),
    ]:
        editor.open(uri, text)
        assert window.seen(editor, uri, place) == (prefix, text[len(prefix) :])
    assert not editor.notifications("window/showMessage")
    assert sorted(tmp_path.rglob("*")) == before


def end_of(text: str) -> tuple[int, int]:
    last = text.split("\n")[-1]
    return text.count("\n"), len(last.encode("utf-16-le")) // 2


def test_edits_of_every_kind(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "alpha\nbeta\n🎉gamma\n")
    steps = [
        ([((0, 5), (0, 5), "!"), ((0, 0), (0, 1), "A")], "Alpha!\nbeta\n🎉gamma\n"),
        ([((2, 2), (2, 7), "delta")], "Alpha!\nbeta\n🎉delta\n"),
        ([((3, 0), (9, 4), "end\n")], "Alpha!\nbeta\n🎉delta\nend\n"),
        ([((1, 0), (2, 0), "")], "Alpha!\n🎉delta\nend\n"),
        (["new\n", ((0, 3), (0, 99), "er")], "newer\n"),
        ([], "newer\n"),
        ([((0, 0), (0, 4_294_967_295), "x")], "x\n"),
        (["x\nwhole 🎉\n"], "x\nwhole 🎉\n"),
    ]
    for version, (edits, after) in enumerate(steps, start=2):
        editor.change(URI, version, *edits)
        assert window.seen(editor, URI, end_of(after)) == (after, "")
        assert window.daemon.asked[-1].request.version == version
    assert len(window.daemon.of(wire.Open)) == 1, "edits travel as deltas, whole texts too"


def test_an_older_version_is_not_applied(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "one", version=5)
    editor.change(URI, 7, ((0, 3), (0, 3), " two"))
    editor.change(URI, 6, ((0, 0), (0, 3), "LATE"))
    assert window.seen(editor, URI, (0, 7)) == ("one two", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///w/My%20Proj/caf%C3%A9.py", "file:///w/My%20Proj/café.py"),
        ("file:///w/caf%C3%A9.py", "file:///w/caf%c3%a9.py"),
        ("file:///w/a%2Bb.py", "file:///w/a+b.py"),
        ("file:///w/100%25.py", "file:///w/100%.py"),
        ("file:///w/x%23y%3Fz.py", "file:///w/x#y?z.py"),
        ("file:///w/%E5%90%8D.py", "file:///w/名.py"),
        ("file:///c%3A/w/%5Bid%5D.py", "file:///c:/w/[id].py"),
        ("file://localhost/w/a.py", "file:/w/a.py"),
    ],
)
def test_a_file_has_many_spellings(window: Window, one: str, other: str) -> None:
    editor = window.editor()
    editor.open(one, "HELLO")
    assert window.seen(editor, other, (0, 5)) == ("HELLO", "")
    editor.change(other, 2, ((0, 5), (0, 5), " AND"))
    assert window.seen(editor, one, (0, 9)) == ("HELLO AND", "")
    assert len(window.daemon.documents()) == 1
    editor.notify("textDocument/didClose", {"textDocument": {"uri": other}})
    assert editor.complete(one, (0, 0)) == []


def test_what_is_no_file_is_spelled_in_one_way_only(window: Window) -> None:
    editor = window.editor()
    cells = [f"vscode-notebook-cell:/w/n.ipynb#W{i}%3D" for i in range(2)]
    for cell in cells:
        editor.open(cell, f"in {cell}")
    for cell in cells:
        assert window.seen(editor, cell, (0, 99)) == (f"in {cell}", "")


def test_closed_and_opened_again(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "old", version=9)
    editor.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert editor.complete(URI, (0, 0)) == []
    editor.open(URI, "new", version=1)
    assert window.seen(editor, URI, (0, 3)) == ("new", "")


def test_items_that_change_nothing_are_not_sent(window: Window) -> None:
    items = [wire.Item("a", 2, 2, ""), wire.Item("b", 2, 4, "cd"), wire.Item("c", 2, 4, "cdx")]
    window.daemon.answer = lambda asked: wire.Answer(asked.request.id, tuple(items))
    editor = window.editor()
    editor.open(URI, "abcd")
    [item] = editor.complete(URI, (0, 2))
    assert item["insertText"] == "cdx"
    assert item["range"] == {"start": {"line": 0, "character": 2}, "end": {"line": 0, "character": 4}}
    assert item["command"]["command"] == "copilotd.didAccept"
    assert item["command"]["arguments"] == ["c"]


def test_the_popups_entry_and_the_trigger_travel(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "🎉 pri")
    number = editor.request(
        "textDocument/inlineCompletion",
        {
            "textDocument": {"uri": URI},
            "position": {"line": 0, "character": 6},
            "context": {
                "triggerKind": 1,
                "selectedCompletionInfo": {
                    "range": {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 6}},
                    "text": "print",
                },
            },
            "formattingOptions": {"tabSize": 2, "insertSpaces": False},
        },
    )
    editor.response(number)
    request = window.daemon.asked[-1].request
    assert (request.trigger, request.selected) == ("invoked", wire.Selected(2, 5, "print"))
    assert (request.tab_size, request.insert_spaces) == (2, False)


# ---- large documents (H29) -------------------------------------------------------------------------------


@pytest.mark.parametrize(("lines", "seconds"), [(50_000, 1.0), (330_000, 5.0)])
def test_a_large_document(window: Window, lines: int, seconds: float) -> None:
    """The time is the case's bound, about fifteen times what was seen."""
    rows = [f"value_{i} = compute({i})" for i in range(lines)]
    editor = window.editor()
    editor.open(URI, "\n".join(rows) + "\n")
    middle = 25_000
    for place in [(0, 0), (lines, 0), (middle, len(rows[middle]))]:
        prefix, suffix = window.seen(editor, URI, place)
        assert (prefix[-200:], suffix[:100]) == around(rows, place)
        sent = window.daemon.asked[-1].copy.opened
        assert prefix == "" or not sent.cut_before or prefix.startswith("value_")
        assert suffix == "" or not sent.cut_after or suffix.endswith(")\n")
        assert sent.cut_before == (len(prefix) < len("\n".join(rows[: place[0]])))
    started = time.perf_counter()
    for i in range(20):
        column = len(rows[middle]) + i
        editor.change(URI, 2 + i, ((middle, column), (middle, column), "z"))
    prefix, _ = window.seen(editor, URI, (middle, len(rows[middle]) + 20))
    assert time.perf_counter() - started < seconds
    assert prefix.endswith(rows[middle] + "z" * 20)


def around(rows: list[str], place: tuple[int, int]) -> tuple[str, str]:
    line, column = place
    near = [*rows, ""]
    above = "".join(row + "\n" for row in near[max(0, line - 20) : line])
    below = "".join(
        row + "\n" for row in near[line + 1 : line + 20 if line + 20 < len(near) else len(near) - 1]
    )
    rest = near[line][column:] + ("\n" if line < len(near) - 1 else "")
    return (above + near[line][:column])[-200:], (rest + below)[:100]


def test_edits_outside_and_across_the_window_of_a_large_document(window: Window) -> None:
    editor = window.editor()
    rows = [f"value_{i} = compute({i})" for i in range(330_000)]
    editor.open(URI, "\n".join(rows) + "\n")
    place = (200_000, 5)
    window.seen(editor, URI, place)
    opens = len(window.daemon.of(wire.Open))
    editor.change(URI, 2, ((10, 0), (10, 0), "above\n" * 3))
    editor.change(URI, 3, ((329_000, 0), (329_500, 0), ""))
    prefix, suffix = window.seen(editor, URI, (200_003, 5))
    assert prefix.endswith("\nvalue")
    assert suffix.startswith("_200000 = ")
    assert len(window.daemon.of(wire.Open)) == opens, "edits elsewhere move the window, they do not send it"
    editor.change(URI, 4, ((0, 0), (200_003, 0), ""))
    prefix, suffix = window.seen(editor, URI, (0, 5))
    assert (prefix, suffix[:10]) == ("value", "_200000 = ")


def test_a_line_of_two_megabytes(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "x" * 2_000_000)
    editor.change(URI, 2, ((0, 1_000_000), (0, 1_000_000), "🎉"))
    prefix, suffix = window.seen(editor, URI, (0, 1_000_002))
    assert (len(prefix), prefix[-2:], len(suffix)) == (1_000_001, "x🎉", 1_000_000)


def test_any_edits_leave_the_daemon_with_the_editors_text(window: Window) -> None:
    random.seed(7)
    editor = window.editor()
    units = list("def f():\r    return ")
    editor.open(URI, "".join(units))
    for version in range(2, 300):
        joined = "".join(units)
        start = random.randint(0, len(units))
        end = min(len(units), start + random.choice([0, 0, 1, 7]))
        new = random.choice(["a", "\n", "🎉", "é\r\n", "", "xyz"])
        if "\r\n" in (joined[start - 1 : start + 1], joined[end - 1 : end + 1]):
            continue  # no position lies inside a line's end
        editor.change(URI, version, (place(joined, start), place(joined, end), new))
        data = new.encode("utf-16-le")
        units[start:end] = [chr(data[i] + 256 * data[i + 1]) for i in range(0, len(data), 2)]
    text = "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert window.seen(editor, URI, (1 << 20, 0)) == (text, "")


def place(joined: str, offset: int) -> tuple[int, int]:
    lines = re.split("\r\n|\r|\n", joined[:offset])
    return len(lines) - 1, len(lines[-1])
