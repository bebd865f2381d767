"""Which models are used and why, and what was found of them on this machine. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator

from copilotd.backends.base import Description
from copilotd.config import DaemonSettings
from copilotd.daemon.checks.finding import Finding, failed, ok, skipped, warning
from copilotd.models.choice import choose
from copilotd.models.errors import ModelError
from copilotd.models.machine import look
from copilotd.models.offer import offers
from copilotd.models.store import Place
from copilotd.wording import plural


def check_choice(settings: DaemonSettings) -> Iterator[Finding]:
    """What a daemon with these settings would load."""
    machine = look(settings, measure=settings.model == "auto")
    try:
        choice = choose(settings, machine)
    except ModelError as error:
        yield failed(
            "choice",
            str(error),
            "`copilotd pull` lists what can be fetched, `copilotd models` what fits here",
        )
        return
    yield ok("choice", "; ".join(choice.reasons))
    if settings.model == "auto" and choice.target.name == "embedded":
        better = [offer.words for offer in offers(settings, machine)]
        yield warning(
            "choice",
            "nothing better than the embedded pair is on this machine, and its text is poor",
            "Fetch one with `copilotd pull NAME` ("
            + "; ".join(better)
            + '), or set model = "/path/to/Qwen2.5-Coder" under [daemon]; then `copilotd reload`',
        )
    if choice.draft_problem:
        yield warning("draft", choice.draft_problem, 'Mend `draft` in the settings, or set it to "none"')
    for role, place in (("target", choice.target), ("draft", choice.draft)):
        if place is not None:
            yield _files(role, place)


def _files(role: str, place: Place) -> Finding:
    """Whether they are there is known by now; a load looks into them."""
    weights = list(place.folder.glob("*.safetensors"))
    lacking = [name for name in ("config.json", "tokenizer.json") if not (place.folder / name).is_file()]
    if lacking or not weights:
        missing = ", ".join([*lacking, *(() if weights else ("*.safetensors",))])
        return failed(
            f"{role} files",
            f"{place.folder} lacks {missing}",
            "Fetch the model again, or name another folder in the settings",
        )
    size = sum(file.stat().st_size for file in weights)
    return ok(f"{role} files", f"{place.folder}, {size / 1e6:.0f} MB")


def check_loaded(loaded: Description | None, *, local: bool = True) -> Iterator[Finding]:
    """What a load found; None: nothing is loaded."""
    if loaded is None or not loaded.target:
        if local:
            yield skipped(
                "loaded",
                "nothing is loaded, so nothing was tested or measured: `copilotd doctor --test` does it here",
            )
        return
    yield ok("loaded", f"{loaded.target}, {loaded.quantisation or 'as the server has it'} on {loaded.device}")
    yield from _draft(loaded)
    yield from _identity(loaded)
    yield from _calibration(loaded)


def _draft(loaded: Description) -> Iterator[Finding]:
    for remark in loaded.remarks:
        yield warning("loaded", remark, "See there; then `copilotd reload`")
    yield ok("draft", loaded.draft or "none: drafts by lookup alone")


def _identity(loaded: Description) -> Iterator[Finding]:
    claims = loaded.identity
    if claims.speculation is None:
        yield skipped("identity", "no self-test for this backend")
    elif claims.speculation:
        yield ok(
            "identity",
            "speculation changes no token"
            + (", warm caches change none" if claims.cache else "; warm caches may (by rounding)"),
        )
    else:
        yield warning(
            "identity",
            "on this device a token may depend on what rides along in its step",
            'Another quantisation may do better (int8, nf4); speculation = "off" is always exact',
        )


def _calibration(loaded: Description) -> Iterator[Finding]:
    measured = loaded.calibration
    if not measured.step_ms:
        return
    steps = "  ".join(f"{rows}: {ms:.1f}" for rows, ms in measured.step_ms)
    yield ok("steps", f"ms of a step of the target by its rows: {steps}")
    if measured.draft_step_ms:
        yield ok("draft step", f"{measured.draft_step_ms[0][1]:.1f} ms")
    threads = f"{plural(measured.threads, 'thread')}, " if measured.threads else ""
    yield ok(
        "speed",
        f"{threads}{1e3 / measured.step_ms[0][1]:.0f} tokens/s plain, "
        f"{measured.prefill_tokens_per_s:.0f} tokens/s of prompt",
    )
