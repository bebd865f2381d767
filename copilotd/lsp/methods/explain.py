"""copilotd/explain: how a completion at a place comes about, for a person who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec
from pygls.exceptions import JsonRpcRequestCancelled

from copilotd.lsp import shapes
from copilotd.lsp.link import Request

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = "copilotd/explain"


class Params(shapes.Params):
    uri: str
    position: shapes.Position


def handle(ls: Front, params: Params) -> Awaitable[dict[str, Any]] | None:
    document = ls.session.document(params.uri)
    if document is None:
        return None
    return answer(ls, ls.session.explain(document, params.position.place))


async def answer(ls: Front, request: Request) -> dict[str, Any]:
    """{items: [text], reason, explanation}: see completion.explanation.Explanation."""
    try:
        answer = await request.answer
    except asyncio.CancelledError:
        ls.session.cancel(request)
        raise
    if answer.outcome in ("superseded", "cancelled"):
        raise JsonRpcRequestCancelled
    return {
        "items": [item.text for item in answer.items],
        "reason": answer.reason,
        "explanation": msgspec.msgpack.decode(answer.explanation) if answer.explanation else None,
    }
