"""textDocument/didChange"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes
from copilotd.lsp.document import Edit

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.TEXT_DOCUMENT_DID_CHANGE


class Versioned(shapes.Params):
    uri: str
    version: int


class Change(shapes.Params):
    text: str
    range: shapes.Range | None = None


class Params(shapes.Params):
    text_document: Versioned
    content_changes: list[Change]


def handle(ls: Front, params: Params) -> None:
    edits = [edit(change) for change in params.content_changes]
    ls.session.change(params.text_document.uri, params.text_document.version, edits)


def edit(change: Change) -> Edit:
    if change.range is None:
        return Edit(None, None, change.text)
    return Edit(change.range.start.place, change.range.end.place, change.text)
