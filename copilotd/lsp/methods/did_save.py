"""textDocument/didSave"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.TEXT_DOCUMENT_DID_SAVE


class Params(shapes.Params):
    text_document: shapes.TextDocument


def handle(ls: Front, params: Params) -> None:
    ls.session.saved(params.text_document.uri)
