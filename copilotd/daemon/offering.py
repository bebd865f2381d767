"""Telling a person, once, that better models could be fetched. Nothing is fetched unasked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from copilotd.models.offer import Offer
from copilotd.wire import Choice
from copilotd.wire import Offer as Message

KEEP = Choice("Keep the Embedded Pair")


class Once:
    """A file in the state folder says that it has been done."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def take(self) -> bool:
        """True the first time. Where that cannot be remembered it is never the first time: better no offer
        than one at every start."""
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False
        return True


def message(offers: Sequence[Offer]) -> Message:
    """The question, with sizes and sources. Without offers it says so."""
    if not offers:
        return Message(
            "copilotd: nothing better than the model in use is offered for this machine. "
            "`copilotd models` lists what there is."
        )
    listed = "; ".join(offer.words for offer in offers)
    text = (
        "copilotd writes with the small models that come with it, and their text is poor. "
        f"Better ones can be fetched ({listed}), or brought: `copilotd models add FOLDER`. "
        "Nothing is fetched unless you say so."
    )
    return Message(text, (*(Choice(f"Fetch {o.name} ({o.size})", o.name) for o in offers), KEEP))
