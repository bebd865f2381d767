"""workspace/didChangeConfiguration: session keys, asked for again or taken from the notification."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from copilotd.lsp import shapes
from copilotd.lsp.settings import SECTION, section

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.WORKSPACE_DID_CHANGE_CONFIGURATION


class Params(shapes.Params):
    settings: Any = None


def handle(ls: Front, params: Params) -> Awaitable[None] | None:
    if can_pull(ls):
        return pull(ls)
    ls.workspace_settings.configured = section(params.settings)
    ls.configure()
    return None


def can_pull(ls: Front) -> bool:
    return ls.supports("workspace", "configuration")


async def pull(ls: Front) -> None:
    """Ask the client for our section, in all and for each folder. No answer, or null, means defaults."""
    if not can_pull(ls):
        return
    uris = list(ls.workspace_settings.uris)
    items = [types.ConfigurationItem(section=SECTION)]
    items += [types.ConfigurationItem(scope_uri=uri, section=SECTION) for uri in uris]
    found = await ls.request(types.WORKSPACE_CONFIGURATION, types.ConfigurationParams(items))
    values = found if isinstance(found, list) else []
    ls.workspace_settings.configured = values[0] if values else None
    ls.workspace_settings.by_folder = dict(zip(uris, values[1:], strict=False))
    ls.configure()
