"""The walked folders and indexed files of every session, kept true to the disk."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from copilotd.context.ignore import FILES as IGNORE_FILES
from copilotd.context.ignore import Ignore
from copilotd.context.index import IndexWriter, nearness
from copilotd.context.secrets import Secrets
from copilotd.context.walk import Found, Skip, Walk

MAX_ROOTS = 31
"""Folders at once: their bit sets are int32."""

MOST_CHARACTERS = 12
"""in a token, over a whole file"""

_LANGUAGES = [
    ("py", "pyi"), ("ts", "tsx", "js", "jsx", "mts", "cts", "mjs", "cjs", "vue", "svelte"), ("java", "kt", "kts", "scala"),
    ("sql",), ("go",), ("rs",), ("c", "h", "cc", "cpp", "hpp", "cxx"), ("cs",), ("rb",), ("php",), ("swift",),
    ("html", "css", "scss", "less"), ("md", "rst", "txt"), ("json", "yaml", "yml", "toml", "xml", "ini", "cfg"),
    ("sh", "bash", "zsh"), ("lua",), ("dart",), ("ex", "exs"),
]  # fmt: skip
_LANGUAGE = {ending: number for number, endings in enumerate(_LANGUAGES, 1) for ending in endings}


def language_of(path: str) -> int:
    """A small number for a family of languages by the file's ending; 0 for any other."""
    return _LANGUAGE.get(path.rsplit(".", 1)[-1].lower(), 0)


class Folder(Struct):
    ignore: Ignore
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    skipped: dict[str, Skip] = field(default_factory=dict)
    rules: tuple[tuple[str, int], ...] = ()
    """its ignore files and their times: when they change, the folder is walked anew"""


class File(Struct):
    found: Found
    number: int | None
    """in the index; None: not there, `skip` says why"""
    skip: Skip | None = None


class Root(Struct):
    walk: Walk
    bit: int
    users: int = 0
    folders: dict[str, Folder] = field(default_factory=dict)

    def holds(self, path: str) -> bool:
        """Whether its walk has found the file."""
        folder = self.folders.get(os.path.dirname(path))
        return folder is not None and path in folder.files


class Tree:
    """Work is done in small steps by `work`, so that messages are answered between them."""

    def __init__(
        self,
        index: IndexWriter,
        encode: Callable[[str], list[int]],
        secrets: Secrets,
        watch: Callable[[str], None],
        unwatch: Callable[[str], None],
        indexed: Callable[[File, str], None],
        forgotten: Callable[[File], None],
        skipped: Callable[[str, Skip], None] = lambda path, why: None,
    ) -> None:
        self._index = index
        self._encode = encode
        self._secrets = secrets
        self._watch, self._unwatch = watch, unwatch
        self._indexed, self._forgotten, self._skipped = indexed, forgotten, skipped
        self.roots: dict[str, Root] = {}
        self.files: dict[str, File] = {}
        self._to_list: deque[tuple[str, str, Ignore]] = deque()
        self._to_read: deque[tuple[str, Found]] = deque()
        self.moved: Callable[[dict[int, int]], None] = lambda moved: None
        """called after compaction with old and new numbers"""
        self.reads = 0

    # ---- what the sessions have --------------------------------------------------------------------------

    def use(self, path: str) -> Root | None:
        """A session has this folder. None where there are too many, or no such folder."""
        try:
            real = str(Path(path).resolve(strict=True))
        except OSError:
            return None
        root = self.roots.get(real)
        if root is None:
            free = set(range(MAX_ROOTS)) - {one.bit for one in self.roots.values()}
            if not free:
                return None
            root = self.roots[real] = Root(Walk(Path(real), self._secrets), min(free))
            self._to_list.append((real, real, Ignore.root(Path(real))))
        root.users += 1
        return root

    def release(self, root: Root) -> None:
        """A session has it no longer; the last one takes the files along that no other folder holds."""
        root.users -= 1
        if root.users == 0:
            real = str(root.walk.root)
            self._drop_folder(root, real)
            del self.roots[real]

    # ---- work --------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return not self._to_list and not self._to_read

    def changed(self, folder: str) -> None:
        """The folder's entries are to be looked at again."""
        for real, root in self.roots.items():
            known = root.folders.get(folder)
            if known is not None:
                self._to_list.append((real, folder, known.ignore))

    def work(self) -> bool:
        """One folder listed or one file read; False when there is nothing to do."""
        if self._to_list:
            self._list(*self._to_list.popleft())
        elif self._to_read:
            self._read(*self._to_read.popleft())
        else:
            return False
        return True

    def _list(self, real: str, folder: str, ignore: Ignore) -> None:
        root = self.roots.get(real)
        if root is None:
            return
        known = root.folders.get(folder)
        rules = _rules(folder)
        if known is None:
            known = root.folders[folder] = Folder(ignore, rules=rules)
            self._watch(folder)
        elif known.rules != rules:
            parent = root.folders.get(str(Path(folder).parent))
            fresh = Ignore.root(Path(real)) if parent is None else parent.ignore.enter(Path(folder))
            self._drop_folder(root, folder)
            self._to_list.append((real, folder, fresh))
            return
        listing = root.walk.list(folder, known.ignore)
        for path, why in listing.skipped.items() - known.skipped.items():
            self._skipped(path, why)
        known.skipped = listing.skipped
        files = {found.path: found for found in listing.files}
        folders = dict(listing.folders)
        for path in known.files - files.keys():
            self._forget(root, path)
        for path in known.folders - folders.keys():
            self._drop_folder(root, path)
        for path in folders.keys() - known.folders:
            self._to_list.append((real, path, folders[path]))
        known.files, known.folders = set(files), set(folders)
        for path, found in files.items():
            file = self.files.get(path)
            if file is None or not _same(file.found, found):
                self._to_read.append((real, found))
            elif file.number is not None:
                self._index.show_to(file.number, self._roots_of(path))

    def _read(self, real: str, found: Found) -> None:
        root = self.roots.get(real)
        if root is None:
            return
        old = self.files.get(found.path)
        if old is not None and _same(old.found, found):  # two folders hold it, or listed twice
            if old.number is not None:
                self._index.show_to(old.number, self._roots_of(found.path))
            return
        self.reads += 1
        text, skip = root.walk.read(found)
        if old is not None:
            self._take_out(old)
        file = self.files[found.path] = File(found, None, skip)
        if skip is not None:
            self._skipped(found.path, skip)
        if text is not None:
            file.number = self._put(found, text)
            if file.number is None:
                file.skip = "full"
            else:
                self._indexed(file, text)

    def _put(self, found: Found, text: str) -> int | None:
        """Into the index. What cannot fit is not even tokenised."""
        if len(text) > self._index.room * MOST_CHARACTERS:
            return None
        ids, language, roots = self._encode(text), language_of(found.path), self._roots_of(found.path)
        near = nearness(found.path)
        number = self._index.add(ids, language, roots, near=near)
        if number is None and self._index.crowded:
            self.moved(self.compact())
            number = self._index.add(ids, language, roots, near=near)
        return number

    def compact(self) -> dict[int, int]:
        moved = self._index.compact()
        for file in self.files.values():
            if file.number is not None:
                file.number = moved[file.number]
        return moved

    def _roots_of(self, path: str) -> int:
        return sum(1 << root.bit for root in self.roots.values() if root.holds(path))

    def _forget(self, root: Root, path: str) -> None:
        """The file is no longer below this root; another may still hold it."""
        folder = root.folders.get(os.path.dirname(path))
        if folder is not None:
            folder.files.discard(path)
        file = self.files.get(path)
        if file is None:
            return
        bits = self._roots_of(path)
        if bits == 0:
            self._take_out(file)
            del self.files[path]
        elif file.number is not None:
            self._index.show_to(file.number, bits)

    def _take_out(self, file: File) -> None:
        if file.number is not None:
            self._index.remove(file.number)
            self._forgotten(file)
            file.number = None

    def _drop_folder(self, root: Root, folder: str) -> None:
        known = root.folders.get(folder)
        if known is None:
            return
        for path in list(known.files):
            self._forget(root, path)
        for path in known.folders:
            self._drop_folder(root, path)
        del root.folders[folder]
        if not any(folder in other.folders for other in self.roots.values()):
            self._unwatch(folder)

    # ---- what status shows -------------------------------------------------------------------------------

    @property
    def folders(self) -> int:
        return len({folder for root in self.roots.values() for folder in root.folders})

    def skipped(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for root in self.roots.values():
            for folder in root.folders.values():
                total.update(folder.skipped.values())
        total.update(file.skip for file in self.files.values() if file.skip is not None)
        return total


def _same(one: Found, other: Found) -> bool:
    return (one.mtime_ns, one.size) == (other.mtime_ns, other.size)


def _rules(folder: str) -> tuple[tuple[str, int], ...]:
    found = []
    for name in IGNORE_FILES:
        try:
            found.append((name, os.stat(os.path.join(folder, name)).st_mtime_ns))
        except OSError:
            continue
    return tuple(found)
