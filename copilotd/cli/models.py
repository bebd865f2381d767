"""copilotd models: what there is, what fits this machine, and why."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from copilotd.config import DaemonSettings
    from copilotd.models.choice import Candidate

HELP = "show the models there are, what fits this machine, and why; add files that you have"
MORE = """\
    copilotd models                    the catalogue on this machine
    copilotd models add /media/Qwen2.5-Coder-7B

Expected tokens/s are arithmetic (memory bandwidth over bytes read for a token); measured ones come from
loads on this machine. Both are without speculation, which multiplies them.
"""


class Row(Struct, frozen=True, kw_only=True):
    """One model in `--json`."""

    name: str
    licence: str
    download_bytes: int
    folder: str
    """"": not on this machine"""
    fits: bool
    needed_bytes: int
    """that must be free, with draft, caches and a margin; 0: not known"""
    quantisation: str
    draft: str
    expected_tokens_per_s: float
    measured_tokens_per_s: float
    chosen: bool
    """what the settings mean now"""
    why: str


class Report(Struct, frozen=True, kw_only=True):
    device: str
    free_bytes: int
    total_bytes: int
    bandwidth_bytes_per_s: float
    target: str
    draft: str
    reasons: tuple[str, ...]
    models: tuple[Row, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")
    kinds = parser.add_subparsers(title="with files that you have", metavar="add", dest="kind")
    add = kinds.add_parser("add", help="check a folder of safetensors and make its name known")
    add.add_argument("path", type=Path, metavar="FOLDER", help="with config.json, tokenizer.json and weights")
    add.add_argument(
        "--name", default="", help="what to call it (default: its name in the catalogue, or the folder's)"
    )


def run(args: argparse.Namespace) -> int:
    from copilotd.config import SettingsError, load

    if args.kind == "add":
        return _add(args.path, args.name)
    try:
        settings = load().settings.daemon
    except SettingsError as error:
        print(f"copilotd models: {error}", file=sys.stderr)
        return 1
    report = _report(settings)
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        _show(report)
    return 0


def _report(settings: DaemonSettings) -> Report:
    from copilotd.models import store
    from copilotd.models.choice import candidates, choose
    from copilotd.models.errors import ModelError
    from copilotd.models.machine import look

    machine = look(settings, measure=True)
    try:
        chosen = choose(settings, machine)
        target, draft = chosen.target.name, chosen.draft.name if chosen.draft is not None else ""
        reasons = chosen.reasons
    except ModelError as error:
        target, draft, reasons = "", "", (str(error),)
    rows = [_row(candidate, target) for candidate in candidates(settings, machine)]
    rows += [_added(name, store.models_folder() / name, target) for name in store.names()]
    return Report(
        device=machine.name,
        free_bytes=machine.free_bytes,
        total_bytes=machine.total_bytes,
        bandwidth_bytes_per_s=machine.bandwidth,
        target=target,
        draft=draft,
        reasons=reasons,
        models=tuple(rows),
    )


def _row(candidate: Candidate, target: str) -> Row:
    from copilotd.models.choice import PAYS

    entry = candidate.entry
    why = candidate.obstacle
    if not why and candidate.place is None:
        why = f"fits; copilotd pull {entry.name}"
    elif not why and candidate.draft is not None:
        worth = f": about {candidate.gain:.1f} times as fast" if candidate.gain >= PAYS else ""
        why = f"fits, with {candidate.draft.name} as its draft{worth}"
    return Row(
        name=entry.name,
        licence=entry.licence,
        download_bytes=entry.parameters * (1 if entry.int8 else 2),
        folder=str(candidate.place.folder) if candidate.place is not None else "",
        fits=candidate.fits,
        needed_bytes=candidate.needed_bytes,
        quantisation=candidate.quantisation,
        draft=candidate.draft.name if candidate.draft is not None else "",
        expected_tokens_per_s=round(candidate.expected_tokens_per_s, 1),
        measured_tokens_per_s=round(candidate.measured_tokens_per_s, 1),
        chosen=entry.name == target,
        why=why or "fits",
    )


def _added(name: str, folder: Path, target: str) -> Row:
    files = folder.glob("*.safetensors")
    return Row(
        name=name,
        licence="",
        download_bytes=sum(file.stat().st_size for file in files),
        folder=str(folder.resolve()),
        fits=True,
        needed_bytes=0,
        quantisation="",
        draft="",
        expected_tokens_per_s=0.0,
        measured_tokens_per_s=0.0,
        chosen=name == target,
        why=f'added by hand: model = "{name}"',
    )


def _show(report: Report) -> None:
    print(
        f"{report.device}: {report.free_bytes / 1e9:.1f} of {report.total_bytes / 1e9:.1f} GB free, "
        f"read at {report.bandwidth_bytes_per_s / 1e9:.0f} GB/s\n"
    )
    print(_LINE.format("", "model", "licence", "files", "memory", "expected", "measured", "on disk"))
    print(_LINE.format("", "", "", "GB", "GB", "tokens/s", "tokens/s", ""))
    for row in report.models:
        words = (
            "*" if row.chosen else "",
            row.name,
            row.licence,
            f"{row.download_bytes / 1e9:.2f}",
            _number(row.needed_bytes / 1e9, 1),
            _number(row.expected_tokens_per_s, 0),
            _number(row.measured_tokens_per_s, 0),
            "yes" if row.folder else "no",
        )
        print(_LINE.format(*words).rstrip())
        print(f"      {row.why}")
    chosen = f"{report.target}{f' + {report.draft}' if report.draft else ''}"
    print(
        "\n* "
        + "\n  ".join(
            (f"{chosen} is what your settings mean here:" if report.target else "nothing:", *report.reasons)
        )
    )


_LINE = "{:<1} {:<20} {:<13} {:>6} {:>7} {:>9} {:>9}  {}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value else "-"


def _add(path: Path, name: str) -> int:
    from copilotd.models.errors import ModelError
    from copilotd.models.wheel import PullError

    try:
        from copilotd.models.adding import add

        added = add(path, name)
    except ImportError as error:
        print(
            f"copilotd models: the Python package {error.name} is missing: pip install '/path/to/copilotd[local]'",
            file=sys.stderr,
        )
        return 1
    except (ModelError, PullError, OSError) as error:
        print(f"copilotd models: {error}", file=sys.stderr)
        return 1
    print(f"{added.name}: {added.folder}")
    for remark in added.remarks:
        print(remark)
    print("Then: copilotd reload")
    return 0
