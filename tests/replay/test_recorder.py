"""The recorder: each line at once, nothing of a secret file, and what was typed next found afterwards."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.config import SessionSettings
from copilotd.context.secrets import Secrets
from copilotd.replay.buffer import Buffer
from copilotd.replay.recorder import Recorder, new_file, with_truth
from copilotd.replay.trace import Edit, Event, load

KEY = "AKIA" + "ABCDEFGHIJKLMNOP"


class Spot(NamedTuple):
    name: str
    folder: str = "/w"
    relative: str = ""


def spot(name: str) -> Spot:
    return Spot(name, "/w", name)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def recorder(file: Path, session: SessionSettings | None = None) -> Recorder:
    file, descriptor = new_file(file)
    return Recorder(file, descriptor, lambda: session or SessionSettings(), Secrets(), Clock())


def typed(one: Recorder, name: str, start: int, text: str) -> None:
    for offset, character in enumerate(text, start):
        one.change(name, [(offset, offset, character)])
        one.complete(name, offset + 1, invoked=False)


def test_a_session_becomes_a_trace_and_each_line_is_there_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    one = recorder(file, SessionSettings(multiline="never"))
    one.open(spot("src/a.py"), "x🎉 = 1\n")
    assert file.read_bytes() == b""  # the settings are not yet known
    one.change("src/a.py", [(2, 2, "yy"), (0, 1, "")])
    one.complete("src/a.py", 3, invoked=True)
    one.save("src/a.py")
    one.cancel()
    before = load(file)
    assert before.settings == SessionSettings(multiline="never")
    assert [event.t for event in before.events] == sorted(event.t for event in before.events)
    assert before.events[0].disk == "src/a.py"
    assert before.events[0].text == "x🎉 = 1\n"
    assert before.events[1].open == "src/a.py"
    assert before.events[2].edits == (Edit(((0, 3), (0, 3)), "yy"), Edit(((0, 0), (0, 1)), ""))
    assert (before.events[3].at, before.events[3].trigger) == ((0, 4), "invoked")
    assert [event.save for event in before.events[4:5]] == ["src/a.py"]
    assert before.events[5].cancel
    one.close("src/a.py")
    one.finish()
    assert load(file).events[-1].close == "src/a.py"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_is_overwritten_and_no_link_followed(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("mine")
    (tmp_path / "s-2.jsonl").symlink_to(tmp_path / "elsewhere")
    file, descriptor = new_file(tmp_path / "s.jsonl")
    os.close(descriptor)
    assert file.name == "s-3.jsonl"
    assert (tmp_path / "s.jsonl").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_session_without_a_key_leaves_no_file(tmp_path: Path) -> None:
    one = recorder(tmp_path / "s.jsonl")
    one.open(spot("a.py"), "x = 1\n")
    one.close("a.py")
    one.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "text"), [(".env", "A=1\n"), ("a.py", f"key = '{KEY}'\n")])
def test_a_secret_file_is_never_in_it(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / "s.jsonl"
    one = recorder(file)
    one.open(spot("b.py"), "x = 1\n")
    one.open(spot(name), text)
    typed(one, name, 0, "ab")
    typed(one, "b.py", 0, "ab")
    one.close(name)
    one.finish()
    assert {event.path for event in load(file).events} == {"b.py"}
    assert text.strip() not in file.read_text()


def test_a_link_to_a_secret_file_is_not_in_it(tmp_path: Path) -> None:
    (tmp_path / "ok.py").symlink_to(".env")
    one = recorder(tmp_path / "s.jsonl")
    one.open(spot("b.py"), "x = 1\n")
    one.open(Spot("ok.py", str(tmp_path), "ok.py"), "A=1\n")
    typed(one, "b.py", 0, "ab")
    one.finish()
    assert {event.path for event in load(tmp_path / "s.jsonl").events} == {"b.py"}


def test_a_file_that_turns_secret_goes_from_the_trace_again(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    one = recorder(file)
    one.open(spot("a.py"), "key = ''\n")
    one.open(spot("b.py"), "x = 1\n")
    typed(one, "b.py", 0, "ab")
    typed(one, "a.py", 7, KEY)
    assert '"a.py"' not in file.read_text()
    typed(one, "b.py", 2, "cd")
    one.close("a.py")
    one.open(spot("a.py"), "key = ''\n")  # what was secret once stays out
    typed(one, "a.py", 7, "x")
    one.finish()
    assert {event.path for event in load(file).events} == {"b.py"}
    assert sum(event.change is not None for event in load(file).events) == 4
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = recorder(tmp_path / "s.jsonl")
    one.open(spot("a.py"), "")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    typed(one, "a.py", 0, "abc")
    one.finish()
    assert "No space left" in caplog.text


def test_without_its_file_it_goes_on_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    one = recorder(file)
    one.open(spot("a.py"), "key = ''\n")
    typed(one, "a.py", 0, "ab")
    file.unlink()
    typed(one, "a.py", 9, KEY)
    one.finish()
    assert list(tmp_path.iterdir()) == []


# ---- truth ---------------------------------------------------------------------------------------------


def truths(events: list[Event]) -> list[str | None]:
    return [event.truth for event in with_truth(events) if event.complete]


def change(line: int, start: int, end: int, text: str) -> Event:
    return Event(t=0, change="a", edits=(Edit(((line, start), (line, end)), text),))


def ask(line: int, column: int) -> Event:
    return Event(t=0, complete="a", at=(line, column))


def test_truth_is_what_the_line_got_before_it_was_left() -> None:
    events = [
        Event(t=0, disk="a", text="f()\n"),
        Event(t=0, open="a"),
        change(0, 2, 2, "x"),
        ask(0, 3),
        change(0, 3, 3, "z"),
        ask(0, 4),  # a typo
        change(0, 3, 4, ""),
        change(0, 3, 3, "yz"),
        ask(0, 5),
        change(0, 6, 6, "\n    "),
        ask(1, 4),
        change(1, 4, 4, "go"),
        Event(t=0, close="a"),
    ]
    assert truths(events) == ["yz", None, None, "go"]


code = st.text(alphabet="ab(\n🎉", max_size=8)


@settings(max_examples=100, deadline=None)
@given(code, st.lists(st.tuples(st.integers(0, 30), code), max_size=8))
def test_truth_of_typing_on_is_what_was_typed(old: str, insertions: list[tuple[int, str]]) -> None:
    """Whatever is typed where: a truth is text that stands after the cursor in the end."""
    buffer = Buffer(old)
    events = [Event(t=0, disk="a", text=old), Event(t=0, open="a")]
    for offset, text in insertions:
        at = buffer.position(min(offset, len(buffer.text)))
        edit = Edit((at, at), text)
        buffer.apply([edit])
        events += [Event(t=0, change="a", edits=(edit,)), Event(t=0, complete="a", at=at)]
    told = list(with_truth(events))
    assert [msgspec.structs.replace(event, truth=None) for event in told] == events
    assert all("\n" not in event.truth for event in told if event.truth)
