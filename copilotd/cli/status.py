"""copilotd status: what the daemon does, and how well."""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec

from copilotd.backends.base import Identity
from copilotd.daemon import platform
from copilotd.daemon.commands import ask_status
from copilotd.daemon.launch import LaunchError
from copilotd.daemon.status import Index, NotRunning, Status
from copilotd.version import version
from copilotd.wording import plural

HELP = "show whether the daemon runs, its models and its counts"
MORE = """\
`empty` counts the requests without a suggestion by their reason: loading, secret, off, nothing, …
`left out` counts the files that the index does not hold: ignored, secret, binary, large, full (it is), …
Numbers only: no text of yours is in them, nor in the log that is named last.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    status: Status | NotRunning
    try:
        status = asyncio.run(ask_status())
    except LaunchError as error:
        status = NotRunning(version=version(), last_error=str(error), log_path=str(platform.log_path()))
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(status)).decode() + "\n")
    else:
        for line in _lines(status):
            print(line)
    return 0


def _lines(status: Status | NotRunning) -> list[str]:
    if isinstance(status, NotRunning):
        return [
            f"copilotd {status.version}: not running",
            status.last_error,
            f"log: {status.log_path}",
        ]
    asked = status.requests
    empty = ", ".join(f"{reason} {number}" for reason, number in sorted(asked.empty.items()))
    lines = [
        f"copilotd {status.version}: {status.state}, pid {status.pid}, up {status.uptime_s:.0f} s",
        f"target {status.target or '-'}, draft {status.draft or '-'}, {status.quantisation or '-'} "
        f"on {status.device or '-'}",
        *_kernels(status),
        f"{plural(status.clients, 'editor')}, {plural(status.documents, 'document')}, "
        f"caches {status.kv_bytes / 2**20:.0f} MB",
        f"answered {asked.answered} ({asked.typed_through} typed through, {asked.joined} joined), "
        f"cancelled {asked.cancelled}, empty: {empty or 'none'}",
        _index(status.index),
    ]
    if exact := _exact(status.identity):
        lines.append(f"changes no token, by the self-test: {exact}")
    lines += [
        f"{source}: {status.accepted.get(source, 0)} of {plural(number, 'drafted token')} accepted"
        for source, number in status.drafted.items()
    ]
    lines += [text for text in dict.fromkeys((status.message, status.last_error)) if text]
    return [*lines, f"log: {status.log_path}"]


def _kernels(status: Status) -> list[str]:
    """Nothing where nobody can say."""
    if not status.kernels:
        return []
    why = f" ({status.why_torch})" if status.why_torch else ""
    return [f"kernels: {status.kernels.replace('compiled', 'compiled for this processor')}{why}"]


def _index(index: Index) -> str:
    skipped = ", ".join(f"{reason} {number}" for reason, number in sorted(index.skipped.items()))
    return (
        f"index: {plural(index.folders, 'folder')}, {plural(index.files, 'file')}, "
        f"{plural(index.tokens, 'token')}; "
        f"left out: {skipped or 'none'}"
    )


def _exact(identity: Identity) -> str:
    """What the self-test found; "" where nobody can say."""
    claims = {"speculation": identity.speculation, "warm caches": identity.cache}
    return ", ".join(name if holds else f"not {name}" for name, holds in claims.items() if holds is not None)
