"""Which pair this machine should run (`model = "auto"`), and why. Reading this loads no torch.

The largest target that fits into the memory that is free, is fast enough to type with, lies on the disk and
may be used by everybody. A draft model goes with it where it pays; else drafts come by lookup alone.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from copilotd.config import DaemonSettings
from copilotd.models import memory, speeds, store
from copilotd.models.catalogue import CATALOGUE, Entry, named
from copilotd.models.errors import ModelError
from copilotd.models.machine import Machine
from copilotd.models.memory import Footprint, Quantisation
from copilotd.models.speeds import Speeds
from copilotd.models.store import Place

LEAST_TOKENS_PER_S = 10.0
"""slower than this, nobody waits for it"""
SHARE = 0.6
"""of the memory's read bandwidth that a step reaches, unless steps were seen to reach more: 0.4 to 0.7 of it is
published for GPUs"""
ACCEPTED = 0.7
"""chance of a draft model's token to be accepted, as long as nobody has seen this one's"""
PAYS = 1.1
"""a draft model that promises less is not worth its memory"""
NF4_PARAMETERS = 1_000_000_000
"""NF4 layers cost a smaller target too much, whatever they save: 0.21 nats a token at 135M, int8 0.02"""

Reasons: TypeAlias = tuple[str, ...]


class Candidate(Struct, frozen=True, kw_only=True):
    """One target of the catalogue on this machine."""

    entry: Entry
    place: Place | None
    """None: not on this machine"""
    draft: Entry | None
    """the one that would pay, on this machine or not"""
    draft_place: Place | None
    quantisation: Quantisation
    needed_bytes: int
    """that must be free before it is loaded, with its draft, its caches and a margin"""
    fits: bool
    expected_tokens_per_s: float
    """one by one, by arithmetic: bandwidth over bytes read; 0: the bandwidth is not known"""
    measured_tokens_per_s: float
    """one by one, as loads on this machine measured it; 0: never"""
    gain: float
    """by arithmetic, what a draft model would multiply the speed by"""
    obstacle: str
    """why `auto` passes it over although it may be on disk; "": it does not"""

    @property
    def tokens_per_s(self) -> float:
        return self.measured_tokens_per_s or self.expected_tokens_per_s


class Choice(Struct, frozen=True, kw_only=True):
    """What is to be loaded."""

    target: Place
    draft: Place | None
    quantisation: Quantisation
    """as far as it is known before loading: NF4 and int8 race each other on a CPU then"""
    reasons: Reasons
    draft_problem: str = ""
    """why a draft that was asked for is not there"""


def candidates(settings: DaemonSettings, machine: Machine) -> tuple[Candidate, ...]:
    """Every target of the catalogue, the largest first."""
    known = speeds.read()
    return tuple(_candidate(entry, settings, machine, known) for entry in CATALOGUE if entry.target)


def choose(settings: DaemonSettings, machine: Machine) -> Choice:
    """What `settings` mean on this machine. Raises ModelError when a model that is named is not there."""
    if settings.model != "auto":
        place = store.find(settings.model)
        return _with_draft(place, settings, machine, (f"model = {settings.model!r} in the settings",))
    passed: list[str] = []
    for candidate in candidates(settings, machine):
        if candidate.place is None:
            continue
        if candidate.obstacle:
            passed.append(f"{candidate.entry.name}: {candidate.obstacle}")
            continue
        reasons = (f"{candidate.entry.name} is the best on this machine that fits", *passed)
        return _with_draft(candidate.place, settings, machine, reasons)
    raise ModelError("; ".join(["no model on this machine can be used", *passed]))


def best_to_fetch(settings: DaemonSettings, machine: Machine) -> Candidate | None:
    """The best model of the hub for this machine, on disk or not; None where none fits."""
    return next((c for c in candidates(settings, machine) if c.entry.hub and not c.obstacle), None)


def _candidate(entry: Entry, settings: DaemonSettings, machine: Machine, known: Speeds) -> Candidate:
    quantisation = expected_quantisation(entry, settings, machine, draft=False)
    target = _footprint(entry, quantisation, settings, machine, draft=False)
    measured = known.of(entry.name, quantisation, machine.device)
    draft, gain = _paying_draft(entry, target, settings, machine, known)
    needed = memory.needed(target, None, machine.device)
    if draft is not None:
        both = memory.needed(target, _draft_footprint(draft, settings, machine), machine.device)
        if needed <= machine.free_bytes < both:  # better the larger target alone
            draft = None
        else:
            needed = both
    expected = max(machine.bandwidth * SHARE, known.reached(machine.device)) / target.read_per_token
    seen = measured.tokens_per_s if measured is not None else 0.0
    fits = needed <= machine.free_bytes
    return Candidate(
        entry=entry,
        place=_place(entry),
        draft=draft,
        draft_place=_place(draft) if draft is not None else None,
        quantisation=quantisation,
        needed_bytes=needed,
        fits=fits,
        expected_tokens_per_s=expected,
        measured_tokens_per_s=seen,
        gain=gain,
        obstacle=_obstacle(entry, fits, needed, machine, seen or expected, bool(seen)),
    )


def _obstacle(
    entry: Entry, fits: bool, needed: int, machine: Machine, tokens_per_s: float, measured: bool
) -> str:
    if not machine.local:
        return "torch is not installed: pip install '/path/to/copilotd[local]'"
    if not entry.permissive:
        return f"its licence ({entry.licence}) does not allow all work: name it in the settings to use it"
    if not entry.hub:
        return ""
    if not fits:
        kind = "GPU memory" if machine.device == "cuda" else "memory"
        return f"needs {needed / 1e9:.1f} GB of {kind}, {machine.free_bytes / 1e9:.1f} are free"
    if machine.device == "cpu" and 0 < tokens_per_s < LEAST_TOKENS_PER_S:
        how = "measured" if measured else "expected by the memory's bandwidth"
        return (
            f"too slow to type with: {tokens_per_s:.1f} tokens/s {how}, {LEAST_TOKENS_PER_S:.0f} are wanted"
        )
    return ""


def expected_quantisation(
    entry: Entry, settings: DaemonSettings, machine: Machine, *, draft: bool
) -> Quantisation:
    """As `models.load` will find, but for the race of NF4 and int8 on a CPU, which NF4 is taken to win."""
    if settings.quantisation != "auto":
        return settings.quantisation
    if entry.int8 or (not draft and entry.sizes.layer_parameters < NF4_PARAMETERS):
        return "int8"
    return "nf4" if machine.nf4 else "int8"


def _footprint(
    entry: Entry, quantisation: Quantisation, settings: DaemonSettings, machine: Machine, *, draft: bool
) -> Footprint:
    return memory.footprint(
        entry.sizes,
        quantisation,
        machine.device,
        draft=draft,
        context_tokens=settings.context_tokens + settings.max_draft_tokens + 1,
        int8_files=entry.int8,
        compiled=machine.compiled,
    )


def _draft_footprint(entry: Entry, settings: DaemonSettings, machine: Machine) -> Footprint:
    quantisation = expected_quantisation(entry, settings, machine, draft=True)
    return _footprint(entry, quantisation, settings, machine, draft=True)


# ---- drafts ------------------------------------------------------------------------------------------------


def row_share(device: str) -> float:
    """What one row more costs, as a share of a plain step, as long as nobody has measured it here."""
    return 0.03 if device == "cuda" else 0.15


def draft_gain(cost: float, row: float, accepted: float = ACCEPTED) -> float:
    """What the best number k of drafted tokens multiplies the speed by (Leviathan et al. 2022, theorem 3.8,
    with wider steps that cost more).

    `cost` is a draft step over a target step, `row` a row more in a target step over a plain one.
    """
    tokens, reach, best = 1.0, 1.0, 1.0
    for k in range(1, 17):
        reach *= accepted
        tokens += reach
        best = max(best, tokens / (1 + k * (cost + row)))
    return best


def _paying_draft(
    entry: Entry, target: Footprint, settings: DaemonSettings, machine: Machine, known: Speeds
) -> tuple[Entry | None, float]:
    """The draft of the catalogue, if it pays and is wanted, and its gain: by what was measured here, else by
    the bytes that both read."""
    draft = named(entry.draft) if entry.draft is not None else None
    if draft is None or settings.draft == "none" or settings.speculation == "off":
        return None, 1.0
    quantisation = expected_quantisation(entry, settings, machine, draft=False)
    measured = known.of(entry.name, quantisation, machine.device)
    gain = draft_gain(
        known.draft_cost(entry.name, quantisation, machine.device, draft.name)
        or _draft_footprint(draft, settings, machine).read_per_token / target.read_per_token,
        measured.row_share if measured is not None else row_share(machine.device),
    )
    pays = (
        gain >= PAYS or not draft.hub
    )  # what comes with the package costs no memory: it is asked where it pays
    return (draft if pays else None), gain


def _with_draft(place: Place, settings: DaemonSettings, machine: Machine, reasons: Reasons) -> Choice:
    """The choice of this target, with the draft that the settings mean."""
    entry = place.entry
    candidate = _candidate(entry, settings, machine, speeds.read()) if entry is not None else None
    quantisation: Quantisation = "int8"
    if candidate is not None:
        quantisation = candidate.quantisation
    elif settings.quantisation != "auto":
        quantisation = settings.quantisation
    problem = ""
    draft: Place | None = None
    if settings.draft in ("auto", "none"):
        draft, reason = _usual_draft(candidate, settings)
    else:
        reason = f"draft = {settings.draft!r} in the settings"
        try:
            draft = store.find(settings.draft)
        except ModelError as error:
            problem = f"There is no draft model: {error}"
    return Choice(
        target=place,
        draft=draft,
        quantisation=quantisation,
        reasons=(*reasons, reason),
        draft_problem=problem,
    )


def _usual_draft(candidate: Candidate | None, settings: DaemonSettings) -> tuple[Place | None, str]:
    """Of the catalogue's, and the reason."""
    if settings.draft == "none":
        return None, "no draft model: draft = 'none' in the settings"
    if settings.speculation == "off":
        return None, "no draft model: speculation is off"
    if candidate is None or candidate.entry.draft is None:
        return None, "drafts by lookup alone: no smaller model of its family is known"
    if candidate.draft is None:
        return None, (
            f"drafts by lookup alone: {candidate.entry.draft} "
            + (
                "does not fit beside it"
                if candidate.gain >= PAYS
                else f"would bring {candidate.gain:.2f} times the speed at most"
            )
        )
    if candidate.draft_place is None:
        return None, (
            f"drafts by lookup alone: {candidate.draft.name} would bring about {candidate.gain:.1f} times the "
            f"speed but is not on this machine (copilotd pull {candidate.draft.name})"
        )
    worth = f"about {candidate.gain:.1f} times the speed, by arithmetic"
    return candidate.draft_place, (
        f"{candidate.draft.name} drafts for it{f': {worth}' if candidate.gain >= PAYS else ' where it pays'}"
    )


def _place(entry: Entry) -> Place | None:
    folder = store.on_disk(entry)
    return Place(folder, entry.name, entry) if folder is not None else None
