"""The service, in this process and step by step: what of a workspace is found, by whom (CB-H22, H23, H31)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from copilotd.context import watch
from copilotd.context.index import IndexReader, IndexWriter, View, allocate
from copilotd.context.messages import (
    Ask,
    Begin,
    Buffer,
    Folders,
    Progress,
    Snippet,
    Snippets,
    ToContext,
    Visible,
    Warned,
    encode,
)
from copilotd.context.service import Service, pieces


class Bench:
    """A service with one token a byte, and what it said."""

    def __init__(self) -> None:
        self.descriptor = allocate(capacity=200_000, files=4096)
        self.reader = IndexReader(self.descriptor)
        self.service = Service(Begin(""), IndexWriter(self.descriptor), lambda text: list(text.encode()))
        self.views: dict[str, View] = {}
        self.progress = Progress()
        self.snippets: tuple[Snippet, ...] = ()
        self.warnings: list[str] = []

    def say(self, *messages: ToContext) -> None:
        for message in messages:
            self.service.handle(message)
        self.settle()

    def settle(self) -> None:
        while self.service.step():
            pass
        for message in self.service.outbox:
            if isinstance(message, Visible):
                self.views[message.client] = View(
                    message.roots, message.owner, frozenset(message.hidden), message.buffers
                )
            elif isinstance(message, Progress):
                self.progress = message
            elif isinstance(message, Snippets):
                self.snippets = message.snippets
            elif isinstance(message, Warned):
                self.warnings.append(message.text)
        self.service.outbox.clear()

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, "not seen in 30 s"
            self.settle()
            time.sleep(0.02)

    def goes_on(self, client: str, text: str, limit: int = 12) -> str | None:
        match = self.reader.find(list(text.encode()), limit, self.views[client], 0)
        return None if match is None else bytes(match.ids).decode()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.service.close()
    bench.reader.close()
    os.close(bench.descriptor)


def fill(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_what_stands_in_a_folder_is_found(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"a.py": "total = compute(x)\n", ".env": "canary = compute(y)\n"})
    bench.say(Folders("one", (str(root),)))
    assert bench.goes_on("one", "total = ") == "compute(x)\n"
    assert bench.goes_on("one", "canary = ") != "compute(y)\n"
    assert (bench.progress.files, bench.progress.skipped) == (1, {"secret": 1})


def test_h31_a_buffer_wins_over_the_disk_and_nested_roots_hold_a_file_once(
    bench: Bench, tmp_path: Path
) -> None:
    root = fill(tmp_path / "w", {"lib/util.py": "def old_name(): return 1\n", "app.py": "import util\n"})
    lib = root / "lib"
    bench.say(Folders("one", (str(root), str(lib))))
    assert bench.progress.files == 2
    assert bench.goes_on("one", "def ", 8) == "old_name"
    bench.say(Buffer("one", str(lib / "util.py"), "python", "def new_name(): return 1\n"))
    assert bench.goes_on("one", "def ", 8) == "new_name"
    ask = Ask(
        "one", str(root / "app.py"), "python", ("old_name", "new_name", "util"), "import util\nprint(util.)\n"
    )
    bench.say(ask)
    assert [snippet.text for snippet in bench.snippets] == ["def new_name(): return 1"]
    bench.say(Folders("one", (str(root),)))
    assert bench.progress.files == 2
    bench.say(Buffer("one", str(lib / "util.py")))
    assert bench.goes_on("one", "def ", 8) == "old_name"
    bench.say(Folders("one", ()))
    assert bench.progress.files == 0


def test_a_name_that_stands_in_the_buffer_and_on_disk_is_shown_as_the_buffer_has_it(
    bench: Bench, tmp_path: Path
) -> None:
    root = fill(tmp_path / "w", {"util.py": "def tool(): return 1\n", "app.py": "import util\n"})
    bench.say(Folders("one", (str(root),)))
    bench.say(Buffer("one", str(root / "util.py"), "python", "\n\ndef tool(a):\r\n    return a\r\n"))
    bench.say(Ask("one", str(root / "app.py"), "python", ("tool",), ""))
    assert [(s.path, s.line, s.text) for s in bench.snippets] == [
        ("util.py", 2, "def tool(a):\n    return a")
    ]


def test_what_a_module_holds_is_shown_where_it_is_named(bench: Bench, tmp_path: Path) -> None:
    util = "import os\n\n\ndef one(a):\n    return a\n\n\nclass Two:\n    def inner(self):\n        pass\n"
    files = {"lib/util.py": util, "pack/__init__.py": "def three(): pass\n", "util.ts": "function no() {\n"}
    root = fill(tmp_path / "w", files)
    bench.say(Folders("one", (str(root),)))
    app = str(root / "app.py")
    bench.say(Ask("one", app, "python", ("util",), "import util\nprint(util.)\n"))
    assert [(s.path, s.text) for s in bench.snippets] == [("lib/util.py", "def one(a):\nclass Two:")]
    bench.say(Ask("one", app, "python", ("util", "one"), "import util\nutil.one\n"))
    assert [snippet.text for snippet in bench.snippets] == ["class Two:", "def one(a):\n    return a"]
    bench.say(Ask("one", app, "python", ("pack",), "from w.pack import \n"))
    assert [snippet.text for snippet in bench.snippets] == ["def three(): pass"]
    bench.say(Ask("one", app, "python", ("util",), "util = 3\n"))
    assert bench.snippets == ()


def test_no_line_is_shown_twice(bench: Bench, tmp_path: Path) -> None:
    """An edit within a definition, a method within its class."""
    root = fill(tmp_path / "w", {"util.py": "", "app.py": "", "shape.py": ""})
    whole = "class Shape:\n    def area(self):\n        return 1\n"
    bench.say(Folders("one", (str(root),)), Buffer("one", str(root / "util.py"), "python", "def tool(a):\n"))
    bench.say(Buffer("one", str(root / "util.py"), "python", "def tool(a, b):\n    return a\n"))
    bench.say(Buffer("one", str(root / "shape.py"), "python", whole))
    bench.say(Ask("one", str(root / "app.py"), "python", ("area", "Shape", "tool"), ""))
    shown = "\n".join(snippet.text for snippet in bench.snippets)
    for line in ("def tool(a, b)", "class Shape", "def area", "return 1"):
        assert shown.count(line) == 1, line


def test_edits_that_were_undone_or_thrown_away_are_not_shown(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"util.py": "x = 1\n"})
    util = str(root / "util.py")
    ask = Ask("one", str(root / "app.py"), "python", ("unknown",), "")
    bench.say(Folders("one", (str(root),)), Buffer("one", util, "python", "x = 1\n"))
    bench.say(Buffer("one", util, "python", "x = 1\nnever_saved = 2\n"), ask)
    assert [snippet.text for snippet in bench.snippets] == ["never_saved = 2"]
    bench.say(Buffer("one", util), ask)
    assert bench.snippets == ()
    (root / "util.py").write_text("x = 1\nnever_saved = 2\n")
    bench.wait(lambda: bench.goes_on("one", "never_saved = ") == "2\n")
    bench.say(ask)
    assert [snippet.text for snippet in bench.snippets] == ["never_saved = 2"]


def test_what_was_just_deleted_can_be_looked_up_and_goes_with_the_buffer(
    bench: Bench, tmp_path: Path
) -> None:
    path = str(tmp_path / "a.py")
    bench.say(Buffer("c", path, "python", "total = sum(price of every item)\nnext\n"))
    bench.say(Buffer("c", path, "python", "total = \nnext\n"))
    bench.say(Buffer("c", path, "python", "total = s\nnext\n"))  # typed on: that deletes nothing
    assert bench.views["c"].buffers.keys() == {path}
    assert bench.goes_on("c", "sum(pri") == "ce of every "
    assert bench.goes_on("c", "= s\nn") == "ext\n"
    bench.say(Buffer("c", path, "python", None), Folders("c", (str(tmp_path),)))
    assert bench.goes_on("c", "sum(pri") is None


def test_a_buffer_told_again_is_encoded_where_it_changed(bench: Bench, tmp_path: Path) -> None:
    encoded: list[str] = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return list(text.encode())

    bench.service._encode = encode
    lines = [f"value_{number} = {number}" for number in range(1000)]
    path = str(tmp_path / "a.py")
    for change in ("changed", "changed again"):
        bench.say(Buffer("c", path, "python", "\n".join(lines)))
        assert "".join(pieces("\n".join(lines))) == "\n".join(lines)
        lines[500] = change
    assert sum(map(len, encoded)) < 1.2 * len("\n".join(lines))
    assert bench.goes_on("c", "value_998 =") == " 998\nvalue_9"


def test_a_buffer_that_becomes_secret_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    path = str(tmp_path / "notes.py")
    ask = Ask("one", str(tmp_path / "app.py"), "python", ("helper",), "")
    bench.say(Folders("one", (str(tmp_path),)), Buffer("one", path, "python", "def helper():\n    pass\n"))
    bench.say(Buffer("one", path, "python", "def helper():\n    value = 1\n"), ask)
    assert bench.snippets
    key = "-----BEGIN PRIVATE KEY-----"
    bench.say(Buffer("one", path, "python", f"def helper():\n    value = 1\n{key}\n"), ask)
    assert bench.snippets == ()
    assert bench.goes_on("one", "def helper():\n") is None


def test_a_file_reached_through_a_link_is_one_file(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "real", {"util.py": "def old_name(): return 1\n", "app.py": "def mine(): pass\n"})
    link = tmp_path / "link"
    link.symlink_to(root)
    bench.say(Folders("one", (str(link),)))
    bench.say(Buffer("one", str(link / "util.py"), "python", "def new_name(): return 1\n"))
    assert bench.goes_on("one", "def ", 8) == "new_name"
    assert bench.goes_on("one", "def old_") is None
    bench.say(Ask("one", str(link / "app.py"), "python", ("old_name", "new_name", "mine"), ""))
    assert [snippet.text for snippet in bench.snippets] == ["def new_name(): return 1"]


def test_a_file_outlives_the_folder_that_it_was_first_found_in(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"lib/util.py": "def tool(): return 1\n"})
    bench.say(Folders("one", (str(root / "lib"),)))
    bench.say(Folders("one", (str(root / "lib"), str(root))))
    bench.say(Folders("one", (str(root),)))
    bench.say(Ask("one", str(root / "app.py"), "python", ("tool",), ""))
    assert [snippet.text for snippet in bench.snippets] == ["def tool(): return 1"]


def test_a_folder_named_twice_or_absent_at_first_is_let_go_like_any_other(
    bench: Bench, tmp_path: Path
) -> None:
    root = fill(tmp_path / "w", {"a.py": "value = 1\n"})
    late = str(tmp_path / "late")
    bench.say(Folders("one", (str(root), str(root), late)))
    fill(tmp_path / "late", {"b.py": "other = 2\n"})
    bench.say(Folders("two", (late,)))
    bench.say(Folders("one", (str(root),)), Folders("one", ()))
    assert bench.goes_on("two", "other = ") == "2\n"
    assert bench.progress.files == 1


def test_without_folders_only_buffers_are_seen(bench: Bench, tmp_path: Path) -> None:
    fill(tmp_path, {"util.py": "def on_disk(): return 1\n"})
    bench.say(Folders("one", ()), Buffer("one", str(tmp_path / "b.py"), "python", "def in_buffer(): pass\n"))
    bench.say(Ask("one", str(tmp_path / "app.py"), "python", ("on_disk", "in_buffer"), ""))
    assert [snippet.text for snippet in bench.snippets] == ["def in_buffer(): pass"]
    assert bench.progress.files == 0


def test_an_ignored_file_is_no_context_while_it_is_open(bench: Bench, tmp_path: Path) -> None:
    files = {".gitignore": "ignored/\n*.local.py\n", "ignored/a.py": "", "x.local.py": "", "x.py": ""}
    root = fill(tmp_path / "w", files)
    bench.say(Folders("one", (str(root),)))
    for path in ("ignored/deep/a.py", "x.local.py", "node_modules/m/index.js"):
        bench.say(Buffer("one", str(root / path), "python", "def canary(): return 1\n"))
        assert bench.goes_on("one", "def can") is None, path
    bench.say(Ask("one", str(root / "app.py"), "python", ("canary",), ""))
    assert bench.snippets == ()
    bench.say(Buffer("one", str(root / "x.py"), "python", "def seen(): return 1\n"))
    assert bench.goes_on("one", "def se") == "en(): return"


@pytest.mark.parametrize("odd", ["\0", "\ufeff", "\ufffd"])
def test_h25_text_read_in_a_wrong_encoding_is_not_shown(bench: Bench, tmp_path: Path, odd: str) -> None:
    root = fill(tmp_path / "w", {"a.py": f"def caf{odd}(): pass\n\n\ndef plain():\n    return '{odd}'\n"})
    bench.say(Folders("one", (str(root),)))
    bench.say(Buffer("one", str(root / "b.py"), "python", f"def other():\n    return '{odd}'\n"))
    bench.say(Ask("one", str(root / "app.py"), "python", ("plain", "other"), ""))
    assert bench.snippets == ()


def test_h25_names_that_no_message_can_carry(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"good.py": "def good(): return 1\n"})
    for name in (b"caf\xe9.py", b"d\xff"):
        path = os.fsencode(root) + b"/" + name
        if name.endswith(b".py"):
            Path(os.fsdecode(path)).write_text("def odd(): return 1\n")
        else:
            fill(Path(os.fsdecode(path)), {"a.py": "def odd(): return 1\n"})
    bench.say(Folders("one", (str(root),)))
    assert (bench.progress.files, bench.progress.skipped) == (1, {"name": 2})
    bench.service.handle(Ask("one", str(root / "app.py"), "python", ("odd", "good"), ""))
    assert [encode(message) for message in bench.service.outbox]
    bench.settle()
    assert [snippet.text for snippet in bench.snippets] == ["def good(): return 1"]


def test_sessions_do_not_see_each_other(bench: Bench, tmp_path: Path) -> None:
    one = fill(tmp_path / "one", {"a.py": "value = first()\n"})
    two = fill(tmp_path / "two", {"b.py": "value = second()\n"})
    bench.say(Folders("one", (str(one),)), Folders("two", (str(two),)))
    bench.say(Buffer("two", "untitled:1", "python", "value = unsaved()\n"))
    assert bench.goes_on("one", "value = ") == "first()\n"
    assert bench.goes_on("two", "value = ") == "unsaved()\n"
    bench.say(Buffer("two", "untitled:1"), Folders("two", ()))
    assert bench.progress.files == 1


def test_h26_one_file_open_in_two_windows_is_two_texts(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"shared.py": "def on_disk(): pass\n", "app.py": ""})
    shared, app = str(root / "shared.py"), str(root / "app.py")
    names = ("of_a", "of_b", "on_disk", "shared")
    for client, text in (("a", "def of_a(): pass\n"), ("b", "def of_b(): pass\n")):
        bench.say(Folders(client, (str(root),)), Buffer(client, shared, "python", text))
    bench.say(Folders("c", (str(root),)))
    for client, name in (("a", "of_a"), ("b", "of_b"), ("c", "on_disk")):
        assert bench.goes_on(client, "def ", len(name)) == name
        bench.say(Ask(client, app, "python", names, "import shared\nshared.\n"))
        assert [snippet.text for snippet in bench.snippets] == [f"def {name}(): pass"]
    bench.say(Buffer("a", shared), Folders("a", ()))
    assert bench.goes_on("b", "def ", 4) == "of_b"


def test_a_secret_buffer_is_not_taken_in(bench: Bench, tmp_path: Path) -> None:
    bench.say(Folders("one", (str(tmp_path),)), Buffer("one", str(tmp_path / ".env"), "", "KEY = canary-1\n"))
    bench.say(Buffer("one", str(tmp_path / "x.txt"), "", "-----BEGIN PRIVATE KEY-----\ncanary\n"))
    assert bench.goes_on("one", "KEY = ") is None
    assert bench.goes_on("one", "KEY-----\n") is None


def test_h23_a_checkout_in_bursts_ends_in_what_is_on_disk(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {f"f{i:02}.py": "VALUE = 'main'\n" for i in range(20)})
    bench.say(Folders("one", (str(root),)))
    before = bench.progress.reads
    for content in ("main", "other", "FINAL"):
        for i in range(10):
            temporary = root / f"f{i:02}.py.tmp"
            temporary.write_text(f"VALUE = '{content}'\n")
            temporary.replace(root / f"f{i:02}.py")
        for i in range(10, 20):
            (root / f"f{i:02}.py").unlink()
            (root / f"f{i:02}.py").write_text(f"VALUE = '{content}'\n")
        bench.settle()
    bench.wait(lambda: bench.progress.reads >= before + 20)
    bench.wait(lambda: bench.progress.settled)
    texts = [
        bench.service._tree.roots[str(root)].walk.read(f.found)[0] for f in bench.service._tree.files.values()
    ]
    assert texts == ["VALUE = 'FINAL'\n"] * 20
    assert bench.goes_on("one", "VALUE = '") == "FINAL'\n"
    assert bench.progress.reads - before <= 60
    (root / "f03.py").write_text("VALUE = 'later'\n")
    bench.wait(lambda: bench.goes_on("one", "VALUE = '") == "later'\n")


def test_new_and_removed_folders_and_changed_rules(bench: Bench, tmp_path: Path) -> None:
    root = fill(tmp_path / "w", {"a/x.py": "alpha = 1\n"})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    bench.say(Folders("one", (str(root),)))
    fill(root, {"b/c/y.py": "beta = 2\n"})
    bench.wait(lambda: bench.goes_on("one", "beta = ") == "2\n")
    (root / ".gitignore").write_text("b/\n")
    bench.wait(lambda: bench.goes_on("one", "beta = ") != "2\n")
    (root / ".gitignore").unlink()
    bench.wait(lambda: bench.goes_on("one", "beta = ") == "2\n")
    (root / "a" / "x.py").unlink()
    (root / "a").rmdir()
    bench.wait(lambda: bench.goes_on("one", "alpha = ") != "1\n")


def test_h24_what_is_generated_is_neither_walked_nor_watched(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"src/a{i}.py": f"name{i} = {i}\n" for i in range(20)}
    files |= {f"node_modules/m{i}/index.js": "x\n" for i in range(300)}
    for folder in (".venv", "target", "dist", "build"):
        files |= {f"{folder}/d{i}/a.py": "x\n" for i in range(50)}
    root = fill(tmp_path / "w", files)
    seen: list[str] = []
    real_scandir, real_watch = os.scandir, watch.KernelWatcher.watch

    def watching(self: watch.KernelWatcher, folder: str) -> None:
        seen.append(folder)
        real_watch(self, folder)

    monkeypatch.setattr(watch.KernelWatcher, "watch", watching)
    monkeypatch.setattr(os, "scandir", lambda path: seen.append(str(path)) or real_scandir(path))
    bench.say(Folders("one", (str(root),)))
    assert set(seen) == {str(root), str(root / "src")}
    assert bench.progress.files == 20


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_h24_no_watches_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(watch, "POLL_S", 0.2)
    done = [0]
    real_init, real_watch = watch.KernelWatcher.__init__, watch.KernelWatcher.watch

    def refuse_init(self: watch.KernelWatcher) -> None:
        if fails_at == 0:
            raise OSError(24, "inotify instance limit reached")
        real_init(self)

    def refuse_watch(self: watch.KernelWatcher, folder: str) -> None:
        done[0] += 1
        if done[0] >= fails_at:
            raise OSError(28, "inotify watch limit reached")
        real_watch(self, folder)

    monkeypatch.setattr(watch.KernelWatcher, "__init__", refuse_init)
    monkeypatch.setattr(watch.KernelWatcher, "watch", refuse_watch)
    root = fill(tmp_path / "w", {f"d{i}/a.py": f"name{i} = {i}\n" for i in range(5)})
    bench = Bench()
    bench.say(Folders("one", (str(root),)))
    assert bench.goes_on("one", "name4 = ") == "4\n"
    (root / "d4" / "a.py").write_text("name4 = changed\n")
    bench.wait(lambda: bench.goes_on("one", "name4 = ") == "changed\n")
    assert len(bench.warnings) == 1
    assert "max_user_watches" in bench.warnings[0]
    bench.service.close()
    bench.reader.close()
    os.close(bench.descriptor)


def test_snippets_are_definitions_of_names_used_and_recent_edits(bench: Bench, tmp_path: Path) -> None:
    root = fill(
        tmp_path / "w",
        {
            "shapes.py": "import math\n\n\nclass Circle:\n    def area(self):\n        return math.pi\n\n\nclass Other:\n    pass\n",
            "app.py": "from shapes import Circle\n\n\n",
            "notes.ts": "export function unrelated(a: number) {\n  return a;\n}\n",
        },
    )
    bench.say(Folders("one", (str(root),)))
    bench.say(
        Ask("one", str(root / "app.py"), "python", ("Circle", "nothing"), "from shapes import Circle\n")
    )
    assert [(s.path, s.line, s.reason) for s in bench.snippets] == [("shapes.py", 3, "definition")]
    assert bench.snippets[0].text == "class Circle:\n    def area(self):\n        return math.pi"
    bench.say(Ask("one", str(root / "app.py"), "python", ("nothing",), ""))
    assert bench.snippets == ()
    notes = str(root / "notes.ts")
    bench.say(Buffer("one", notes, "typescript", (root / "notes.ts").read_text()))
    bench.say(Buffer("one", notes, "typescript", "export function renamed(a: number) {\n  return a;\n}\n"))
    bench.say(Ask("one", str(root / "app.py"), "python", ("nothing",), ""))
    assert [(s.path, s.text, s.reason) for s in bench.snippets] == [
        ("notes.ts", "export function renamed(a: number) {", "recent edit")
    ]
