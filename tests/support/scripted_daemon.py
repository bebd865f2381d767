"""The process that ScriptedDaemon starts: the real daemon, with a scripted backend in its constructor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from copilotd.backends.base import Backend
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings
from copilotd.daemon.loading import Completes
from copilotd.daemon.process import serve
from tests.support.plain_completer import PlainCompleter
from tests.support.scripted import make_scripted

records, options, detach = Path(sys.argv[1]), json.loads(sys.argv[2]), "--detach" in sys.argv[3:]
version = options.pop("version", "9999")
plain = options.pop("plain", False)


def make_completer(backend: Backend, settings: DaemonSettings) -> Completes:
    return PlainCompleter(backend) if plain else Completer(backend, settings)


sys.exit(serve(make_scripted(options, records), make_completer, version=version, detach=detach))
