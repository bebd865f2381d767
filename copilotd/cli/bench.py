"""copilotd bench: how fast the loaded pair decodes, plain and speculating."""

from __future__ import annotations

import argparse
import random
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from rich.console import Console

from copilotd.wording import plural

if TYPE_CHECKING:  # with torch behind them
    from copilotd.backends.local import LocalBackend
    from copilotd.engine.bench import Decoding
    from copilotd.engine.generation import GenerationRequest
    from copilotd.models.vocabulary import Vocabulary

HELP = "measure decoding, plain and speculating, on real source files"
MORE = """\
    copilotd bench decode                      the model of your settings, on Python's own files
    COPILOTD_MODEL=embedded copilotd bench decode src/*.py --prompts 6

It loads the models for itself, beside a running daemon: stop that first if memory is short.
"""

BEFORE, AFTER = 2400, 800
"""characters of a prompt above and below its cursor"""


class DecodeReport(Struct, frozen=True, kw_only=True):
    """What `copilotd bench decode --json` writes."""

    device: str
    target: str
    draft: str
    quantisation: str
    plain_tokens_per_s: float
    speculative_tokens_per_s: float
    speedup: float
    ceiling: float
    acceptance: float
    tokens_per_step: float
    identical: bool
    step_ms: dict[str, float]
    draft_step_ms: float
    bytes_per_token: int
    bandwidth_share: float
    prompts: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    decode = kinds.add_parser("decode", help="tokens per second after the prompt")
    decode.add_argument("files", nargs="*", type=Path, help="source files (default: Python's own)")
    decode.add_argument(
        "--prompts", type=_positive, metavar="N", default=12, help="how many places to complete (%(default)s)"
    )
    decode.add_argument(
        "--tokens", type=_positive, metavar="N", default=64, help="tokens to write at each (%(default)s)"
    )
    decode.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as JSON")


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no number from 1 up")
    return int(word)


def run(args: argparse.Namespace) -> int:
    if args.json is not None and not args.json.parent.is_dir():
        print(f"copilotd bench: no such folder: {args.json.parent}", file=sys.stderr)
        return 2
    from copilotd.backends.base import BackendError
    from copilotd.config import SettingsError, load

    try:
        from copilotd.backends.local import LocalBackend
    except ModuleNotFoundError as error:
        print(
            f"copilotd bench: {error.name} is not installed: pip install '/path/to/copilotd[local]'",
            file=sys.stderr,
        )
        return 1
    try:
        loaded = load()
        if loaded.problems:
            raise SettingsError("; ".join(loaded.problems))
        with Console(stderr=True).status("loading the models …") as progress:
            backend = LocalBackend.load(loaded.settings, lambda what, done, total: None)
            progress.update(f"{plural(args.prompts, 'prompt')}, plain and speculating …")
            try:
                report = decode(backend, args.files or standard_library(), args.prompts, args.tokens)
            finally:
                backend.close()
    except (BackendError, SettingsError, OSError, ValueError) as error:
        print(f"copilotd bench: {error}", file=sys.stderr)
        return 1
    show(report)
    if args.json is not None:
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 0


def standard_library() -> list[Path]:
    """Python's own modules: real source files that are on every machine."""
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py"))


def decode(backend: LocalBackend, files: Sequence[Path], prompts: int, tokens: int) -> DecodeReport:
    from copilotd.engine import bench

    requests = list(cut_prompts(files, backend.vocabulary, prompts, tokens, backend.context_tokens))
    found: Decoding = bench.decode(backend.engine, requests)
    about = backend.describe()
    read_per_s = backend.bytes_per_token * found.plain_tokens_per_s
    return DecodeReport(
        device=about.device,
        target=about.target,
        draft=about.draft,
        quantisation=about.quantisation,
        bytes_per_token=backend.bytes_per_token,
        bandwidth_share=read_per_s / bench.read_bandwidth(about.device),
        prompts=len(requests),
        **msgspec.structs.asdict(found),
    )


def cut_prompts(
    files: Sequence[Path], vocabulary: Vocabulary, prompts: int, tokens: int, context_tokens: int
) -> Iterator[GenerationRequest]:
    """Fill-in-the-middle prompts at random places after the first characters of a line; always the same ones.

    Raises ValueError when no file has a place.
    """
    from copilotd.engine.generation import GenerationRequest, Surroundings

    rng = random.Random(0)
    texts = [text for file in files if len(text := file.read_text("utf-8", "replace")) > 400]
    if not texts:
        raise ValueError("no source file of at least 400 characters to cut prompts from")
    for _ in range(prompts):
        text = rng.choice(texts)
        cursor = rng.randrange(len(text) // 4, len(text) - 100)
        room = (context_tokens - tokens - 4) // 4
        before = vocabulary.encode(text[max(0, cursor - BEFORE) : cursor])[-3 * room :]
        after = vocabulary.encode(text[cursor : cursor + AFTER])[:room]
        yield GenerationRequest(
            prompt=layout(vocabulary, before, after),
            surroundings=Surroundings(before=before, after=after),
            max_new_tokens=tokens,
            stop_ids=vocabulary.control,
        )


def layout(vocabulary: Vocabulary, before: list[int], after: list[int]) -> list[int]:
    begin = [] if vocabulary.begin is None else [vocabulary.begin]
    if vocabulary.fim is None:
        return [*begin, *before]
    fim = vocabulary.fim
    return [*begin, fim.prefix, *before, fim.suffix, *after, fim.middle]


def show(report: DecodeReport) -> None:
    steps = "  ".join(f"{rows}: {ms:.1f}" for rows, ms in report.step_ms.items())
    print(f"{report.target}, draft {report.draft or 'none'}, {report.quantisation}, {report.device}")
    print(f"plain        {report.plain_tokens_per_s:8.1f} tokens/s")
    print(
        f"speculative  {report.speculative_tokens_per_s:8.1f} tokens/s "
        f"({report.speedup:.2f}x, at most {report.ceiling:.2f}x with free drafts)"
    )
    print(f"acceptance   {report.acceptance:8.2f}, {report.tokens_per_step:.2f} tokens per step")
    identical = "yes" if report.identical else "NO"
    print(f"the same text both ways: {identical}, over {plural(report.prompts, 'prompt')}")
    print(f"target step by rows, ms: {steps}; draft step {report.draft_step_ms:.1f}")
    print(
        f"{report.bytes_per_token / 1e6:.0f} MB per token, {report.bandwidth_share:.0%} of the read bandwidth"
    )
