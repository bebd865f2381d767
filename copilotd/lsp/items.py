"""From the daemon's item to the editor's."""

from __future__ import annotations

from collections import OrderedDict

from lsprotocol import types

from copilotd import wire
from copilotd.lsp.document import Document

REMEMBERED = 256
"""shown items whose text is kept for a partial accept"""


def to_editor(document: Document, item: wire.Item) -> types.InlineCompletionItem | None:
    """The item in lines and columns, or None if taking it would change nothing."""
    start, end = document.from_daemon(item.start), document.from_daemon(item.end)
    text = item.text.replace("\r\n", "\n").replace("\r", "\n")
    if text == document.text.slice(start, end):
        return None
    return types.InlineCompletionItem(
        insert_text=text,
        range=types.Range(
            start=types.Position(*document.text.position(start)),
            end=types.Position(*document.text.position(end)),
        ),
        command=types.Command(title="Accepted", command="copilotd.didAccept", arguments=[item.id]),
    )


class Shown:
    """Texts of the items the editor was given last."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, item: str, text: str) -> None:
        self._texts[item] = text
        if len(self._texts) > REMEMBERED:
            self._texts.popitem(last=False)

    def text(self, item: str) -> str | None:
        return self._texts.get(item)
