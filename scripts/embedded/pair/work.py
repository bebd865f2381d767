"""Where archives, corpora and checkpoints are kept: outside the repository."""

from __future__ import annotations

import argparse
from pathlib import Path

from platformdirs import user_cache_path


def add_option(parser: argparse.ArgumentParser) -> None:
    default = user_cache_path("copilotd") / "embedded"
    parser.add_argument("--work", type=Path, default=default, help="work folder (default: %(default)s)")
