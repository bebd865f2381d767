"""With the popup open an editor shows only what extends its highlighted entry."""

from __future__ import annotations

from copilotd.completion.postprocess.texts import Change, Context


def popup(context: Context, text: str) -> Change | None:
    chosen = context.selected
    if not chosen or (text.startswith(chosen) and len(text) > len(chosen)):
        return None
    return Change("", "it does not extend the popup's entry")
