"""Folders of the window and the layers of settings the editor gave for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from copilotd.config import Loaded, SessionSettings
from copilotd.lsp.settings import read
from copilotd.lsp.uris import path_of, same_spelling
from copilotd.wire import Folder


class Outcome(NamedTuple):
    settings: SessionSettings
    folders: tuple[Folder, ...]
    problems: list[str]


class Workspace:
    """The user's own settings, then what came with `initialize`, then what the editor has configured."""

    def __init__(self, own: Loaded) -> None:
        self._own = own
        self.uris: list[str] = []
        self.initial: object = None
        """section of the initialization options"""
        self.configured: object = None
        """section of the editor's settings"""
        self.by_folder: Mapping[str, object] = {}
        """the same for a folder's URI"""

    def change_folders(self, added: Sequence[str], removed: Sequence[str]) -> None:
        gone = {same_spelling(uri) for uri in removed}
        kept = [uri for uri in self.uris if same_spelling(uri) not in gone]
        self.uris = list({same_spelling(uri): uri for uri in [*kept, *added]}.values())

    def outcome(self) -> Outcome:
        session = read([self.initial, self.configured], self._own)
        problems = list(session.problems)
        folders: list[Folder] = []
        for uri in self.uris:
            if path := path_of(uri):
                layers = [self.initial, self.configured, self.by_folder.get(uri)]
                here = read(layers, self._own)
                problems += here.problems
                settings = None if here.settings == session.settings else here.settings
                folders.append(Folder(path, settings, here.trusted))
        return Outcome(session.settings, tuple(folders), problems)
