"""What counts as seen, and the rules of llama.vim's client, with a scripted server."""

from __future__ import annotations

import asyncio
import time

from peers.llama import Completion
from peers.screen import Screen
from peers.vim import LINE_SUFFIX, PREFIX_LINES, LlamaVim, place

ABOVE = "import os\n\n\ndef size(path):\n"


class Scripted:
    """Answers with what stands for the line so far; counts."""

    def __init__(self, answers: dict[str, str], seconds: float = 0.0) -> None:
        self.answers = answers
        self.seconds = seconds
        self.asked: list[tuple[str, str, str]] = []

    def infill(self, prefix: str, suffix: str, middle: str, tokens: int, limit_ms: float) -> Completion:
        self.asked.append((prefix, middle, suffix))
        time.sleep(self.seconds)
        text = self.answers.get(middle, "")
        return Completion(
            text=text,
            ids=[],
            prompt_tokens=1,
            prompt_ms=1,
            tokens=1,
            decode_ms=1,
            line_ms=1.0 if text else None,
        )


def test_typing_as_shown_is_typed_through_and_another_word_is_not() -> None:
    screen = Screen()
    first = screen.moved("x = a", 5)
    assert screen.show("x = a", "", "bs(y)\nreturn x", first, first.at + 0.2)
    assert first.ms is not None
    assert 199 < first.ms < 201
    assert (first.asked, first.line) == (True, "bs(y)")
    assert screen.moved("x = ab", 6).typed_through
    assert not screen.moved("x = ax", 6).typed_through
    assert not screen.moved("x = ab", 6).typed_through  # it was hidden


def test_an_answer_for_an_older_text_counts_for_all_who_wait_if_it_still_fits() -> None:
    screen = Screen()
    first, second = screen.moved("re", 2), screen.moved("ret", 3)
    assert screen.show("re", "", "turn 1", first, second.at + 0.1)
    assert first.ms is not None
    assert second.ms is not None
    assert first.ms > second.ms
    assert second.line == "urn 1"
    third = screen.moved("rex", 3)
    assert not screen.show("re", "", "turn 1", first, third.at)
    assert third.ms is None


def test_the_place_is_whole_lines_and_the_line_up_to_the_cursor() -> None:
    text = "a\n" * 300 + "foo(bar)\nnext\n"
    cursor = text.index("bar")
    found = place(text, cursor)
    assert found is not None
    assert found.prefix == "a\n" * PREFIX_LINES
    assert (found.middle, found.suffix) == ("foo(", "bar)\nnext\n")
    assert place("x" * 20, 20 - LINE_SUFFIX - 1) is None


def play(server: Scripted, lines: list[str], pause: float) -> tuple[LlamaVim, Screen]:
    async def typing() -> tuple[LlamaVim, Screen]:
        screen = Screen()
        vim = LlamaVim(server.infill, screen)
        for line in lines:
            text = ABOVE + line
            stroke = screen.moved(text, len(text))
            vim.complete("a.py", (4, len(line)), text, len(text), stroke)
            await asyncio.sleep(pause)
        await vim.settle()
        return vim, screen

    return asyncio.run(typing())


def test_what_was_answered_is_looked_back_for() -> None:
    server = Scripted({"    ret": "urn os.stat(path)"})
    _, screen = play(server, ["    ret", "    retu", "    retur"], 0.05)
    assert [stroke.typed_through for stroke in screen.strokes] == [False, True, True]
    middles = [middle for _, middle, _ in server.asked]
    assert middles == ["    ret", "    return os.stat(path)"]  # the second is the one ahead
    assert all(stroke.ms is not None for stroke in screen.strokes)


def test_a_busy_server_is_asked_again_for_the_newest_place_alone() -> None:
    server = Scripted({"    x": "yz", "    xab": "c"}, seconds=0.25)
    _, screen = play(server, ["    x", "    xa", "    xab"], 0.02)
    assert [middle for _, middle, _ in server.asked][:2] == ["    x", "    xab"]
    assert screen.strokes[-1].ms is not None
    assert screen.strokes[-1].ms >= 200


def test_on_a_blank_line_the_answer_comes_from_its_start() -> None:
    server = Scripted({"": "    return 1"})
    _, screen = play(server, ["    "], 0.05)
    assert server.asked[0][1] == ""
    assert screen.strokes[0].line == "return 1"
