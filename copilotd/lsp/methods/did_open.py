"""textDocument/didOpen"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.TEXT_DOCUMENT_DID_OPEN


class Item(shapes.Params):
    uri: str
    text: str
    language_id: str = ""
    version: int = 0


class Params(shapes.Params):
    text_document: Item


def handle(ls: Front, params: Params) -> None:
    item = params.text_document
    ls.session.open(item.uri, item.language_id, item.version, item.text)
