"""initialized: from here on we may ask and tell the client things."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from lsprotocol import types

from copilotd.lsp import shapes
from copilotd.lsp.methods import did_change_configuration
from copilotd.lsp.settings import SECTION

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.INITIALIZED


class Params(shapes.Params):
    pass


def handle(ls: Front, params: Params) -> Awaitable[None]:
    ls.display.begin()
    ls.fetching.begin()
    return _configure(ls)


async def _configure(ls: Front) -> None:
    if ls.supports("workspace", "didChangeConfiguration", "dynamicRegistration"):
        registration = types.Registration(
            id="copilotd-configuration",
            method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
            register_options=types.DidChangeConfigurationRegistrationOptions(section=SECTION),
        )
        ls.protocol.send_request(types.CLIENT_REGISTER_CAPABILITY, types.RegistrationParams([registration]))
    await did_change_configuration.pull(ls)
