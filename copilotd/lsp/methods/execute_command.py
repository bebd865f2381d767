"""workspace/executeCommand: what the person did with an item, a rest for this window, and fetching a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from copilotd.lsp import shapes
from copilotd.lsp.text import advance

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

METHOD = types.WORKSPACE_EXECUTE_COMMAND


class Params(shapes.Params):
    command: str
    arguments: list[Any] | None = None


def handle(ls: Front, params: Params) -> None:
    """An unknown command or odd arguments do nothing."""
    if run := COMMANDS.get(params.command):
        run(ls, params.arguments or [])


def did_accept(ls: Front, arguments: list[Any]) -> None:
    match arguments:
        case [str(item), *_]:
            ls.session.accepted(item, None)


def did_partially_accept(ls: Front, arguments: list[Any]) -> None:
    """The accepted length is counted in UTF-16 units, as editors do, from the item's start."""
    match arguments:
        case [str(item), int(length), *_] if text := ls.shown.text(item):
            ls.session.accepted(item, advance(text, max(length, 0), "utf-16").offset)


def pause(ls: Front, arguments: list[Any]) -> None:
    ls.session.pause(True)
    ls.display.update()


def resume(ls: Front, arguments: list[Any]) -> None:
    ls.session.pause(False)
    ls.display.update()


def fetch(ls: Front, arguments: list[Any]) -> None:
    """A model by its name; without one the person is asked which."""
    match arguments:
        case [str(name), *_]:
            ls.fetching.fetch(name)
        case _:
            ls.session.ask_offer()


COMMANDS: Mapping[str, Callable[[Front, list[Any]], None]] = {
    "copilotd.didAccept": did_accept,
    "copilotd.didPartiallyAccept": did_partially_accept,
    "copilotd.pause": pause,
    "copilotd.resume": resume,
    "copilotd.fetch": fetch,
}
