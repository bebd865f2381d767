"""copilotd doctor: what is used here, what is wrong, and what to do about it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from copilotd.backends.base import BackendError, Description
from copilotd.config import Settings
from copilotd.daemon.checks import editors, machine, place, program, workspace
from copilotd.daemon.checks.finding import Finding, failed
from copilotd.daemon.commands import ask_status
from copilotd.daemon.launch import LaunchError
from copilotd.daemon.log import place as place_of
from copilotd.daemon.platform import Unsupported, Unusable, require_supported
from copilotd.daemon.status import Status
from copilotd.version import version
from copilotd.wording import plural

HELP = "look at everything copilotd depends on, with a remedy under each warning"
MORE = """\
It asks a running daemon, and neither starts one nor fetches or changes anything. With --test, and
no daemon whose models are loaded, it loads them itself: the self-test and the measured steps are
then from this very run. The code is 0 when nothing has failed.
"""

MARKS = {"ok": "ok     ", "skipped": "-      ", "warning": "warning", "failed": "FAILED "}


class Section(Struct, frozen=True):
    title: str
    findings: list[Finding]


class Diagnosis(Struct, frozen=True):
    """`copilotd doctor --json`"""

    version: str
    level: Literal["ok", "warning", "failed"]
    """the worst"""
    sections: list[Section]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--test", action="store_true", help="load the models if no daemon has them loaded")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    try:
        require_supported()
    except Unsupported as problem:
        print(problem, file=sys.stderr)
        return 1
    diagnosis = diagnose(test=args.test)
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(diagnosis)).decode() + "\n")
    else:
        _show(diagnosis)
    return int(diagnosis.level == "failed")


def diagnose(*, test: bool = False) -> Diagnosis:
    loaded, said = program.read_settings()
    settings, status = loaded.settings, _status()
    daemon, local = settings.daemon, settings.daemon.backend == "local"
    sections = [
        _section(
            "Program", program.check_program, lambda: program.check_libraries(local=local), lambda: said
        ),
        _section(
            "Daemon",
            lambda: asyncio.run(place.check_socket()),
            lambda: place.check_daemon(status),
            place.check_disk,
        ),
        _section(
            "Machine",
            machine.check_processor,
            lambda: machine.check_threads(daemon),
            *([lambda: machine.check_device(daemon, status=status)] if local else []),
        ),
        _section("Models", lambda: _models(settings, status, test=test)),
        _section("Workspace", lambda: workspace.check_index(daemon, status), workspace.check_watches),
        _section("Editors", editors.check_path, editors.check_editors),
    ]
    levels = {finding.level for section in sections for finding in section.findings}
    worst: Literal["ok", "warning", "failed"] = (
        "failed" if "failed" in levels else "warning" if "warning" in levels else "ok"
    )
    return Diagnosis(version(), worst, sections)


def _section(title: str, *checks: Callable[[], Iterable[Finding]]) -> Section:
    """A check that fails itself costs its own lines only."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check()
        except Exception as error:
            findings.append(
                failed(title, f"could not be looked at: {place_of(error)}", "Please report this line")
            )
    return Section(title, findings)


def _status() -> Status | None:
    """Of the daemon that runs."""
    try:
        return asyncio.run(ask_status())
    except (LaunchError, Unusable):
        return None


def _models(settings: Settings, status: Status | None, *, test: bool) -> Iterable[Finding]:
    from copilotd.daemon.checks import models

    if settings.daemon.backend == "local":
        if not program.installed("torch"):
            return  # said among the libraries
        yield from models.check_choice(settings.daemon)
    else:
        from copilotd.daemon.checks.server import check_server

        yield from check_server(settings.daemon)
    description = _described(status) if status is not None else None
    if test and settings.daemon.backend == "local" and (description is None or not description.target):
        try:
            description = _load(settings)
        except BackendError as error:
            yield failed("loaded", str(error), "Mend that, then run `copilotd reload`")
            return
    yield from models.check_loaded(description, local=settings.daemon.backend == "local")


def _described(status: Status) -> Description:
    return Description(
        target=status.target,
        draft=status.draft,
        quantisation=status.quantisation,
        device=status.device,
        identity=status.identity,
        calibration=status.calibration,
    )


def _load(settings: Settings) -> Description:
    """By a load in this process. Raises BackendError."""
    from copilotd.backends.local import LocalBackend

    backend = LocalBackend.load(settings, lambda what, done, total: None)
    try:
        return backend.describe()
    finally:
        backend.close()


def _show(diagnosis: Diagnosis) -> None:
    for section in diagnosis.sections:
        print(section.title)
        for finding in section.findings:
            print(f"  {MARKS[finding.level]}  {finding.name}: {finding.text}")
            if finding.remedy:
                print(f"           -> {finding.remedy}")
    findings = [finding for section in diagnosis.sections for finding in section.findings]
    counted = {level: sum(finding.level == level for finding in findings) for level in ("failed", "warning")}
    print(f"\n{counted['failed']} failed, {plural(counted['warning'], 'warning')}")
