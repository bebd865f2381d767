"""initialize: who the client is, and what we offer it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from copilotd import __version__
from copilotd.lsp import shapes
from copilotd.lsp.methods import execute_command
from copilotd.lsp.settings import section
from copilotd.lsp.text import Encoding

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.INITIALIZE

ENCODINGS: tuple[Encoding, ...] = ("utf-16", "utf-32", "utf-8")
"""in our order of preference"""


class ClientInfo(shapes.Params):
    name: str = ""
    version: str | None = None


class Params(shapes.Params):
    process_id: int | None = None
    client_info: ClientInfo | None = None
    root_uri: str | None = None
    root_path: str | None = None
    workspace_folders: list[shapes.WorkspaceFolder] | None = None
    initialization_options: Any = None
    capabilities: Any = None


def handle(ls: Front, params: Params) -> types.InitializeResult:
    encoding = choose_encoding(params.capabilities)
    ls.capabilities = params.capabilities
    ls.session.encoding = encoding
    if client := params.client_info:
        ls.session.editor = f"{client.name} {client.version or ''}".strip()
    ls.workspace_settings.uris = folders(params)
    ls.workspace_settings.initial = section(params.initialization_options)
    ls.configure()
    ls.watch(os.getppid() if params.process_id is None else params.process_id)
    ls.link.start()
    ls.protocol.initialized = True
    return types.InitializeResult(
        capabilities=offer(encoding), server_info=types.ServerInfo("copilotd", __version__)
    )


def offer(encoding: Encoding) -> types.ServerCapabilities:
    return types.ServerCapabilities(
        position_encoding=encoding,
        text_document_sync=types.TextDocumentSyncOptions(
            open_close=True,
            change=types.TextDocumentSyncKind.Incremental,
            save=types.SaveOptions(include_text=False),
        ),
        inline_completion_provider=types.InlineCompletionOptions(),
        execute_command_provider=types.ExecuteCommandOptions(commands=list(execute_command.COMMANDS)),
        workspace=types.WorkspaceOptions(
            workspace_folders=types.WorkspaceFoldersServerCapabilities(
                supported=True, change_notifications=True
            )
        ),
    )


def choose_encoding(capabilities: Any) -> Encoding:
    """The first of ours that the client offers; UTF-16 where it offers none we know."""
    general = capabilities.get("general") if isinstance(capabilities, dict) else None
    offered = general.get("positionEncodings") if isinstance(general, dict) else None
    if not isinstance(offered, list):
        return "utf-16"
    return next((encoding for encoding in ENCODINGS if encoding in offered), "utf-16")


def folders(params: Params) -> list[str]:
    """URIs of the window's folders. An empty list says that there are none; null leaves it to the root."""
    if params.workspace_folders is not None:
        return [folder.uri for folder in params.workspace_folders]
    if params.root_uri is not None:
        return [params.root_uri]
    if params.root_path and Path(params.root_path).is_absolute():
        return [Path(params.root_path).as_uri()]
    return []
