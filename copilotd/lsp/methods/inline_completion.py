"""textDocument/inlineCompletion"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.exceptions import JsonRpcRequestCancelled

from copilotd.lsp import shapes
from copilotd.lsp.document import Document
from copilotd.lsp.items import to_editor
from copilotd.lsp.link import Request
from copilotd.lsp.session import Formatting, Selected

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.TEXT_DOCUMENT_INLINE_COMPLETION


class SelectedCompletion(shapes.Params):
    range: shapes.Range
    text: str


class Context(shapes.Params):
    trigger_kind: int = types.InlineCompletionTriggerKind.Automatic
    selected_completion_info: SelectedCompletion | None = None


class FormattingOptions(shapes.Params):
    """Not in LSP; sent by clients that know more than LSP asks of them."""

    tab_size: int | None = None
    insert_spaces: bool | None = None


class Params(shapes.Params):
    text_document: shapes.TextDocument
    position: shapes.Position
    context: Context | None = None
    formatting_options: FormattingOptions | None = None


Items = list[types.InlineCompletionItem]


def handle(ls: Front, params: Params) -> Items | Awaitable[Items]:
    document = ls.session.document(params.text_document.uri)
    if document is None:
        return []
    context = params.context or Context()
    invoked = context.trigger_kind == types.InlineCompletionTriggerKind.Invoked
    request = ls.session.complete(
        document,
        params.position.place,
        "invoked" if invoked else "automatic",
        selected(context.selected_completion_info),
        formatting(params.formatting_options),
    )
    return answer(ls, document, request)


async def answer(ls: Front, document: Document, request: Request) -> Items:
    """Raises JsonRpcRequestCancelled for a request that a newer one or an edit has overtaken."""
    try:
        answer = await request.answer
    except asyncio.CancelledError:
        ls.session.cancel(request)
        raise
    if answer.outcome in ("superseded", "cancelled"):
        raise JsonRpcRequestCancelled
    ls.display.reason("" if answer.items else answer.reason)
    items = []
    for item in answer.items:
        if found := to_editor(document, item):
            ls.shown.add(item.id, item.text)
            items.append(found)
    return items


def selected(info: SelectedCompletion | None) -> Selected | None:
    return Selected(info.range.start.place, info.range.end.place, info.text) if info else None


def formatting(options: FormattingOptions | None) -> Formatting | None:
    return Formatting(options.tab_size, options.insert_spaces) if options else None
