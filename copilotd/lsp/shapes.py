"""Shapes that several LSP methods receive.

Incoming parameters are read into these and not into lsprotocol's types: we read what we use and nothing
else, so that a client which lists a kind we never heard of, leaves out what we can do without, or names a
column past 2^31 costs us neither the session nor an edit.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from copilotd.lsp.document import Place


class Params(Struct, rename="camel"):
    """Base of all parameters; unknown fields are passed over."""


class NoParams(Params):
    pass


class Position(Params):
    line: int
    character: int

    @property
    def place(self) -> Place:
        return self.line, self.character


class Range(Params):
    start: Position
    end: Position


class TextDocument(Params):
    uri: str


class WorkspaceFolder(Params):
    uri: str


Settings = Any
"""what an editor sends as settings may have any shape"""
