"""exit"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.EXIT


class Params(shapes.Params):
    pass


def handle(ls: Front, params: Params) -> None:
    ls.leave()
