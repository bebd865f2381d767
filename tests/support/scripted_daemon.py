"""The process that ScriptedDaemon starts: the real daemon, with a scripted backend in its constructor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from copilotd.daemon.process import serve
from tests.support.scripted import make_scripted

records, options = Path(sys.argv[1]), json.loads(sys.argv[2])
sys.exit(serve(make_scripted(options, records)))
