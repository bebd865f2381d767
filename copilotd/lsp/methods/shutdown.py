"""shutdown: everything in flight ends, and nothing new is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.SHUTDOWN


class Params(shapes.Params):
    pass


def handle(ls: Front, params: Params) -> None:
    ls.protocol.cancel_requests()
    ls.protocol.shut_down = True
