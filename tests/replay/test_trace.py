"""Traces: what is played, what is refused and how it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from copilotd.replay.trace import TraceError, load

HEADER = {"format": "copilotd-trace/1", "name": "one", "files": {"src/a.py": "x = 1\n"}}


def write(folder: Path, *lines: object) -> Path:
    file = folder / "one.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_whole_trace_is_read(tmp_path: Path) -> None:
    trace = load(
        write(
            tmp_path,
            HEADER | {"settings": {"multiline": "never"}},
            {"t": 0, "open": "src/a.py"},
            {"t": 5, "change": "src/a.py", "edits": [{"range": [[0, 5], [0, 5]], "text": "0"}]},
            {"t": 9, "complete": "src/a.py", "at": [0, 6], "trigger": "automatic", "truth": "0\n"},
            {"t": 10, "cancel": True},
            {"t": 11, "disk": "src/b.py", "text": None},
        )
    )
    assert trace.settings.multiline == "never"
    assert [event.t for event in trace.events] == [0, 5, 9, 10, 11]
    assert trace.events[1].edits[0].range == ((0, 5), (0, 5))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# A readme\n", r"one\.jsonl:1: .*first line is its header"),
        (b"\x7fELF\0\n\n", "first line is its header"),
        (b'{"a":1}', "first line is its header"),
        (json.dumps(HEADER).encode() + b'\n{"t":1,"open":"b"}\n{"t":2,"clo', r"one\.jsonl:3: .*cut short"),
    ],
)
def test_what_is_no_trace_or_half_of_one(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "one.jsonl").write_bytes(content)
    with pytest.raises(TraceError, match=says):
        load(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "empty"),
        ([HEADER | {"format": "copilotd-trace/9"}], "copilotd-trace/9"),
        ([HEADER | {"files": {"../a.py": ""}}], r"one.jsonl:1: path '\.\./a\.py'"),
        ([HEADER | {"files": {"/etc/passwd": ""}}], "/etc/passwd"),
        ([HEADER | {"files": {"a/./b.py": ""}}], "normalised"),
        ([HEADER | {"settings": {"model": "evil"}}], r"settings\.model"),
        ([HEADER | {"settings": {"multiline": "perhaps"}}], "multiline"),
        ([HEADER, {"t": 1, "open": "a/../../b"}], "one.jsonl:2"),
        ([HEADER, {"t": 1, "complete": "src/a.py"}], "`at`"),
        ([HEADER, {"t": "soon", "open": "src/a.py"}], r"one.jsonl:2: .*\$\.t"),
        ([HEADER, {"t": 1, "explode": True}], "explode"),
        ([HEADER, {"t": 1, "disk": "a\0b", "text": ""}], "one.jsonl:2"),
        ([HEADER, {"t": 1, "change": "src/a.py", "edits": []}], "one.jsonl:2.*`open` comes first"),
        ([HEADER, {"t": 1, "complete": "src/a.py", "at": [0, 0]}], "`open` comes first"),
        ([HEADER, {"t": 1, "open": "b"}, {"t": 2, "close": "b"}, {"t": 3, "close": "b"}], "one.jsonl:4"),
        ([HEADER, {"t": 1, "open": "b"}, {"t": 2, "complete": "b", "at": [2**31, 0]}], r"\$\.at"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[object], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        load(write(tmp_path, *lines))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl"):
        load(tmp_path / "none.jsonl")
