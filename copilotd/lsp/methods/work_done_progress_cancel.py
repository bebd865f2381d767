"""window/workDoneProgress/cancel: the person ends what is being fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.WINDOW_WORK_DONE_PROGRESS_CANCEL


class Params(shapes.Params):
    token: int | str


def handle(ls: Front, params: Params) -> None:
    ls.fetching.cancel(params.token)
