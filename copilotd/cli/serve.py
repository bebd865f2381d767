"""copilotd serve: be the resident daemon."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from copilotd.daemon.process import serve

if TYPE_CHECKING:  # loaded on the engine thread, when the socket answers already
    from copilotd.backends.base import Backend, Progress
    from copilotd.config import DaemonSettings, Settings
    from copilotd.daemon.loading import Completes

HELP = "be the resident daemon (fronts start it by themselves)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detach", action="store_true", help="go on in the background")


def run(args: argparse.Namespace) -> int:
    return serve(_backend, _completer, detach=args.detach)


def _backend(settings: Settings, progress: Progress) -> Backend:
    if settings.daemon.backend == "openai":
        from copilotd.backends.openai.backend import OpenAIBackend

        return OpenAIBackend.load(settings, progress)
    from copilotd.backends.local import LocalBackend

    return LocalBackend.load(settings, progress)


def _completer(backend: Backend, settings: DaemonSettings) -> Completes:
    from copilotd.completion.completer import Completer

    return Completer(backend, settings)
