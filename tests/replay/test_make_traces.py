"""scripts/make_traces: what is typed is what was written, whatever the editor closes and indents on its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copilotd.replay.buffer import Buffer
from copilotd.replay.trace import Event, Trace, load

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TRACES = Path(__file__).with_name("traces")
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "embedded")]

from traces import edits, recipes  # type: ignore[import-not-found]
from traces.history import Repository  # type: ignore[import-not-found]
from traces.making import Scene, around, trace, write  # type: ignore[import-not-found]
from traces.typist import Typist  # type: ignore[import-not-found]

OLD = "def f(a):\n    return a\n\n\ndef g(a):\n    return [a, 'x']\n"
NEW = "import os\n\n\ndef f(value):\n    return value\n\n\ndef g(value):\n    if value:\n        return {\n            'x': f(value),\n        }\n    return None\n"


def played(text: str, events: Iterable[Event]) -> str:
    buffer = Buffer(text)
    last = -1.0
    for event in events:
        assert event.t >= last
        last = event.t
        buffer.apply(event.edits)
        if event.at is not None:
            assert buffer.position(buffer.offset(event.at)) == event.at
    return buffer.text


def typed(old: str, steps: Iterable[edits.Step], seed: int = 1) -> tuple[str, list[Event]]:
    typist = Typist("a.py", old, seed)
    typist.type(steps)
    return played(old, typist.events), typist.events


code = st.lists(
    st.sampled_from([*"ab _:,;\n\n({[]})\"'`", "    ", "\n    ", "f(x)", "('", "🎉"]), max_size=40
).map("".join)


@settings(max_examples=150, deadline=None)
@given(code, code, st.integers(0, 5))
def test_the_steps_end_in_the_new_text(old: str, new: str, seed: int) -> None:
    assert typed(old, edits.steps(old, new), seed)[0] == new


def test_a_change_comes_about_as_a_person_would() -> None:
    text, events = typed(OLD, edits.steps(OLD, NEW))
    assert text == NEW
    changes = [edit for event in events for edit in event.edits]
    assert "()" in [edit.text for edit in changes]  # the editor closes a bracket
    assert any(edit.text == ")" and edit.range[0] != edit.range[1] for edit in changes)  # it is typed over
    assert any(edit.text.startswith("\n    ") for edit in changes)  # the editor indents
    gaps = [b.t - a.t for a, b in itertools.pairwise(events) if b.edits]
    assert min(gaps) >= 30
    assert all(event.trigger == "automatic" for event in events if event.complete)


def test_truth_is_what_is_typed_next() -> None:
    new = OLD.replace("return a\n", "return a + sum(range(a))\n")
    _, events = typed(OLD, edits.steps(OLD, new), seed=3)
    buffer = Buffer(OLD)
    judged = 0
    for event in events:
        buffer.apply(event.edits)
        if event.complete and event.at and event.truth:
            place = buffer.offset(event.at)
            line = event.truth.split("\n")[0]
            assert new.startswith(buffer.text[:place] + line)
            judged += 1
    assert judged > 10


def test_typos_are_taken_back_and_asked_about_without_a_truth() -> None:
    new = OLD + "# " + "a long line of words " * 20 + "\n"
    text, events = typed(OLD, edits.steps(OLD, new), seed=2)
    assert text == new
    assert any(edit.text == "" and edit.range[0] != edit.range[1] for event in events for edit in event.edits)
    assert any(event.complete and event.truth is None for event in events)


def test_one_seed_makes_one_trace() -> None:
    scene = Scene("s", "a.py", OLD, edits.steps(OLD, NEW), {"b.py": "x = 1\n"}, ["b.py"])
    assert trace(scene, 7, 100) == trace(scene, 7, 100)
    assert trace(scene, 7, 100) != trace(scene, 8, 100)


def test_copied_lines_are_pasted_and_then_changed() -> None:
    text = "a = 1\ndef f(one):\n    return one\n\ndef g(two):\n    return two\nb = 2\n"
    old, steps = edits.copied(text, (2, 3), (5, 6))
    assert old == "a = 1\ndef f(one):\n    return one\n\nb = 2\n"
    assert isinstance(steps[0], edits.Paste)
    assert [step.text for step in steps[1:]] == ["g", "two", "two"]
    assert typed(old, steps)[0] == text


def test_a_word_is_renamed_wherever_it_stands() -> None:
    assert typed("x = xy + x\n", recipes.renamed("x = xy + x\n", "x", "total"))[0] == "total = xy + total\n"


def test_lines_typed_again_end_in_the_same_text() -> None:
    old, steps = edits.typed_again(NEW, 8, 13)
    assert len(old) < len(NEW)
    assert typed(old, steps)[0] == NEW


def test_secrets_are_refused_and_not_among_the_files_around(tmp_path: Path) -> None:
    key = "x = 'AKIAABCDEFGHIJKLMNOP'\n"
    with pytest.raises(ValueError, match=r"a\.py"):
        write(tmp_path, Scene("s", "a.py", key, []), 1, 10)
    assert around("a.py", [("b.py", key), ("secret.py", "x\n"), ("c.txt", "x")], 5, 100) == {
        "secret.py": "x\n"
    }


def test_blocks_come_out_of_a_git_history_and_its_configuration_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for text in (OLD, NEW):
        (folder / "a.py").write_text(text)
        (folder / "b.py").write_text("x = 1\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "m"], check=True)
    mark = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.sshCommand"):
        subprocess.run([*git, "config", key, f"touch {mark}; false"], check=True)
    out = tmp_path / "out"
    command = [sys.executable, str(SCRIPTS / "make_traces"), "git", str(folder), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    assert not mark.exists()
    first, second = Repository(folder).commits(5)
    assert [changed.path for changed in Repository(folder).changed(first)] == ["a.py"]
    assert [changed.old for changed in Repository(folder).changed(second)] == ["", ""]
    made = load(out / f"r-{first[:8]}-a.jsonl")
    assert made.files == {"a.py": OLD, "b.py": "x = 1\n"}
    assert played(OLD, made.events) == NEW


# ---- those of the repository -----------------------------------------------------------------------------

RECIPES = {recipe.name: recipe for recipe in recipes.read(SCRIPTS / "traces" / "recipes.toml")}
FILES = sorted(TRACES.glob("*.jsonl"))


def test_every_recipe_has_its_trace_and_its_licence_is_told() -> None:
    assert {file.stem for file in FILES} == set(RECIPES)
    assert len(RECIPES) >= 12
    languages = {Path(recipe.path).suffix for recipe in RECIPES.values()}
    assert languages == {".py", ".ts", ".java", ".sql"}
    assert sum(recipe.kind == "edit" for recipe in RECIPES.values()) >= 6
    told = (TRACES / "README.md").read_text()
    for recipe in RECIPES.values():
        assert f"| `{recipe.name}` | {recipe.package} {recipe.version} | {recipe.licence}" in told


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_traces_are_small_and_whole(file: Path) -> None:
    one: Trace = load(file)
    assert file.stat().st_size < 100_000
    recipe = RECIPES[file.stem]
    assert recipe.path in one.files
    assert set(recipe.beside) <= set(one.files)
    events = [event for event in one.events if event.change or event.complete]
    assert played(one.files[recipe.path], events) != one.files[recipe.path]
    assert sum(event.truth is not None for event in one.events) >= 10
