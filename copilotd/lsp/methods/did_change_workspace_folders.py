"""workspace/didChangeWorkspaceFolders"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes
from copilotd.lsp.methods import did_change_configuration

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS


class Event(shapes.Params):
    added: tuple[shapes.WorkspaceFolder, ...] = ()
    removed: tuple[shapes.WorkspaceFolder, ...] = ()


class Params(shapes.Params):
    event: Event


def handle(ls: Front, params: Params) -> Awaitable[None]:
    added = [folder.uri for folder in params.event.added]
    removed = [folder.uri for folder in params.event.removed]
    ls.workspace_settings.change_folders(added, removed)
    ls.configure()
    return did_change_configuration.pull(ls)
