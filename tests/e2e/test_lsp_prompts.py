"""From the editor's message to the model's prompt, and back into the editor's text.

The handed cases H01, H02, H03, H17, H18, H20 and H29 through the real front and the real daemon, with a
scripted model that records its prompts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lsp_driver import LspProcess, Message, Place
from tests.support.scripted import ScriptedDaemon

NEW_TOKENS = 64
CONTEXT = 2048
HEALED = 32
"""bytes that healing takes back at most"""
PATIENT = f"[session]\nmax_latency_ms = 0\nmax_new_tokens = {NEW_TOKENS}\n"
SOURCES = Path(__file__).parents[1] / "sources"
LAYOUT = re.compile(r"(?s).*?<\|fim_prefix\|>(.*)<\|fim_suffix\|>(.*)<\|fim_middle\|>(.*)")


class Bench:
    """One window, one daemon, one script."""

    def __init__(self, daemon: ScriptedDaemon, editor: LspProcess) -> None:
        self.daemon = daemon
        self.editor = editor

    def ask(self, uri: str, place: Place) -> list[Message]:
        return self.editor.complete(uri, place)

    def prompted(self, uri: str, place: Place) -> list[Prompt]:
        """The prompts of a completion there: its own, and those that the daemon writes ahead of time."""
        before = self.daemon.starts()
        self.ask(uri, place)
        records = self.daemon.records("start")[before:]
        assert records
        return [Prompt(record["prompt"], record["text"]) for record in records]


class Prompt:
    def __init__(self, ids: list[int], text: str) -> None:
        for marker in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"):
            assert text.count(marker) == 1
        found = LAYOUT.fullmatch(text)
        assert found
        self.tokens = len(ids)
        self.before = found[1] + found[3]
        """text before the cursor; the last letters of a word may be left out, healing writes them itself"""
        self.after = found[2]

    def stands_at(self, prefix: str, suffix: str) -> bool:
        """Whether it is the prompt for exactly this text."""
        healed = prefix[len(self.before) :]
        return prefix.startswith(self.before) and len(healed) <= HEALED and self.after == suffix

    def is_near(self, text: str, offset: int) -> bool:
        """Whether the nearest characters around an offset stand around its cursor."""
        tail = self.before[-(200 - HEALED) :]
        cuts = range(max(0, offset - HEALED), offset + 1)
        return self.after.startswith(text[offset : offset + 100]) and any(
            text[max(0, cut - 200) : cut].endswith(tail) for cut in cuts
        )


def bench(home: Path, **options: object) -> Iterator[Bench]:
    with ScriptedDaemon(home, settings=PATIENT, **options) as daemon, LspProcess(daemon.env) as editor:
        editor.initialize()
        editor.notified("copilotd/didChangeStatus", lambda status: status["state"] == "ready")
        yield Bench(daemon, editor)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Bench]:
    yield from bench(tmp_path / "home", script="acc += x")


@pytest.mark.parametrize(
    ("prefix", "suffix", "place"),
    [
        ('msg = "🎉🎉 done"; pri', "nt_it(msg)\n", (0, 22)),
        ('tag = "🧪🧪"\nprint(tag, en', 'd="")\n', (1, 13)),
        ('family = "👨‍👩‍👧"; fam', "ily_size(family)\n", (0, 24)),
        ("cafe\u0301 = 1; caf", "e_total = 2\n", (0, 14)),
        ('price = "数量"; pri', "nt(price)\n", (0, 17)),
        ('x = "', '🚀"\n', (0, 6)),
        ("import a\n\f\ndef f():\n    ret", "", (3, 7)),
        ("def twice(x):\n    return ", "", (1, 11)),
        ("", "", (3, 7)),
        ("x = 1", "\n", (0, 999)),
        ("abc\ndef\n", "", (50, 0)),
    ],
)
def test_the_prompt_is_the_editors_text(scene: Bench, prefix: str, suffix: str, place: Place) -> None:
    scene.editor.open("untitled:Untitled-1", prefix + suffix)
    prompt = scene.prompted("untitled:Untitled-1", place)[0]
    assert prompt.stands_at(prefix, suffix), (prompt.before, prompt.after)


def test_crlf_in_and_out(scene: Bench) -> None:
    text = "def total(xs):\r\n    acc = 0\r\n    for x in xs:\r\n        \r\n    return acc\r\n"
    uri = "file:///w/total.py"
    scene.editor.open(uri, text)
    [item] = scene.ask(uri, (3, 8))
    assert "\r" not in scene.daemon.prompts()[-1]
    assert "\r" not in item["insertText"]
    lines = text.split("\r\n")
    end = item["range"]["end"]["character"]
    assert item["range"]["start"] == {"line": 3, "character": 8}
    lines[3] = lines[3][:8] + item["insertText"].replace("\n", "\r\n") + lines[3][end:]
    assert "\r\n".join(lines) == text.replace("        \r\n", "        acc += x\r\n")


def test_the_prompt_follows_every_edit(scene: Bench) -> None:
    uri = "file:///w/s.py"
    scene.editor.open(uri, "alpha\nbeta\n🎉gamma\n")
    for version, (edits, after) in enumerate(
        [
            ([((0, 5), (0, 5), "!"), ((0, 0), (0, 1), "A")], "Alpha!\nbeta\n🎉gamma\n"),
            ([((2, 2), (2, 7), "delta")], "Alpha!\nbeta\n🎉delta\n"),
            ([((3, 0), (9, 4), "end\n")], "Alpha!\nbeta\n🎉delta\nend\n"),
            ([((1, 0), (2, 0), "")], "Alpha!\n🎉delta\nend\n"),
            (["new\n", ((0, 3), (0, 99), "er")], "newer\n"),
        ],
        start=2,
    ):
        scene.editor.change(uri, version, *edits)
        prompts = scene.prompted(uri, (after.count("\n"), 0))
        assert any(prompt.stands_at(after, "") for prompt in prompts), [prompt.before for prompt in prompts]


@pytest.mark.parametrize("lines", [50_000, 330_000])
def test_the_prompt_of_a_large_document_fits_and_keeps_what_is_near(scene: Bench, lines: int) -> None:
    uri = "file:///w/large.py"
    text = "".join(f"value_{i} = compute({i})\n" for i in range(lines))
    scene.editor.open(uri, text)
    middle = text.index("value_25001 ") - 1
    for place, offset in [((25_000, 99), middle), ((0, 0), 0), ((lines, 0), len(text))]:
        prompts = [prompt for prompt in scene.prompted(uri, place) if prompt.is_near(text, offset)]
        assert prompts
        for prompt in prompts:
            assert prompt.tokens + NEW_TOKENS <= CONTEXT
            assert prompt.before == "" or prompt.before.startswith("value_")
            assert prompt.after in ("", "\n") or prompt.after.endswith("\n")


def test_twenty_edits_and_a_request_in_a_large_document(scene: Bench) -> None:
    uri = "file:///w/large.py"
    scene.editor.open(uri, "".join(f"value_{i} = compute({i})\n" for i in range(330_000)))
    scene.ask(uri, (25_000, 22))
    started = time.monotonic()
    typed = " + 1 + 2 + 3 + 4 + 5"
    for i, key in enumerate(typed):
        scene.editor.change(uri, 2 + i, ((25_000, 28 + i), (25_000, 28 + i), key))
    prompts = scene.prompted(uri, (25_000, 48))
    assert time.monotonic() - started < 5
    assert any(("compute(25000)" + typed)[:-4] in prompt.before for prompt in prompts)


def test_a_model_that_prints_leaves_stdout_alone(tmp_path: Path) -> None:
    for scene in bench(tmp_path / "home", script="x", noise=True):
        scene.editor.open("file:///w/a.py", "a = ")
        assert scene.ask("file:///w/a.py", (0, 4))
        scene.editor.shutdown()
        assert scene.editor.exit_code() == 0
        scene.editor._threads[0].join(10)
        assert not scene.editor.violation


def test_ghost_text_on_a_real_typescript_file(tmp_path: Path) -> None:
    text = (SOURCES / "ValidationExecutor.ts").read_text()
    lines = text.split("\n")
    row = next(i for i, line in enumerate(lines) if line.strip().startswith("return "))
    column = lines[row].index("return ") + len("return ")
    wanted = lines[row][column:]
    lines[row] = lines[row][:column]
    for scene in bench(tmp_path / "home", script=wanted):
        scene.editor.open("file:///w/ValidationExecutor.ts", "\n".join(lines), "typescript")
        [item] = scene.ask("file:///w/ValidationExecutor.ts", (row, column))
        assert item["insertText"] == wanted
        same_place = {"line": row, "character": column}
        assert item["range"] == {"start": same_place, "end": same_place}
