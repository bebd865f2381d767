"""copilotd record: the language server of one editor window, which writes a trace of what is typed."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from copilotd.cli import stdio

if TYPE_CHECKING:
    from copilotd.config import Loaded
    from copilotd.lsp.session import Session

HELP = "be the language server as `copilotd --stdio` is, and write what is typed to FILE"
MORE = """\
An editor starts it in the place of `copilotd --stdio`, for as long as you want to record. Neovim:

    vim.lsp.config('copilotd', { cmd = { 'copilotd', 'record', '/home/me/session.jsonl' } })

VS Code: let the setting `copilotd.path` name a script of yours with the two lines

    #!/bin/sh
    exec copilotd record /home/me/session.jsonl "$@"

The file is new and yours alone (0600); if it is there already, FILE-2 is taken, and so on: one for each
window. It holds the text of the files you open and every change, their paths relative to the
workspace, when completions were asked for, and your session settings. Files that hold or name a
secret are left out, and so is everything outside the workspace. Look before you pass it on.
`copilotd replay FILE` plays it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="where to write the trace (JSON Lines)")
    stdio.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if os.isatty(0):
        print(MORE, end="", file=sys.stderr)
        return 2
    from copilotd.replay.recorder import Recorder, new_file

    try:
        file, descriptor = new_file(args.file.absolute())
    except OSError as error:
        print(f"copilotd record: {args.file}: {error.strerror}", file=sys.stderr)
        return 2
    stdin, stdout = stdio.take_standard_streams()
    from copilotd.context.secrets import Secrets
    from copilotd.lsp.recording import RecordedSession

    with ExitStack() as ending:

        def session(loaded: Loaded) -> Session:
            secrets = Secrets(loaded.settings.daemon.secrets_allowed)
            recorder = Recorder(file, descriptor, lambda: recorded.settings, secrets)
            ending.callback(recorder.finish)
            recorded = RecordedSession(loaded.settings.session, recorder)
            return recorded

        return stdio.serve(stdin, stdout, session)
