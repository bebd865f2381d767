"""Where models lie on this machine. Nothing is fetched, and nothing but names and sizes is read.

Three places, in this order: our own folder (`pull` and `models add` put models there), the hub's cache on
disk, and the package itself (the embedded pair). A folder whose files are not all there counts as missing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import platformdirs
from msgspec import Struct

from copilotd.models.catalogue import CATALOGUE, Entry, embedded_folder, named
from copilotd.models.errors import ModelError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class Place(Struct, frozen=True):
    """Where a model lies and what it is called."""

    folder: Path
    name: str
    entry: Entry | None = None


def models_folder() -> Path:
    """Of models that were pulled or added: below the user's data folder, or `COPILOTD_HOME`."""
    home = os.environ.get("COPILOTD_HOME")
    return (Path(home) / "data" if home else platformdirs.user_data_path("copilotd")) / "models"


def on_disk(entry: Entry) -> Path | None:
    """The folder of a model of the catalogue, if its files are all there."""
    if entry.name in ("embedded", "embedded-draft"):
        folder = embedded_folder("draft" if entry.name.endswith("draft") else "target")
        return folder if whole(folder) else None
    own = models_folder() / entry.name
    return own if whole(own) else hub_folder(entry.hub)


def find(wanted: str) -> Place:
    """The folder of a catalogue name, an added name, a hub id or a path. Raises ModelError."""
    entry = named(wanted)
    if wanted and entry is None:
        added = models_folder() / wanted
        if "/" not in wanted and added.is_dir():
            return Place(added, wanted)
        try:
            path = Path(wanted).expanduser()
        except RuntimeError:  # nobody's home
            path = Path(wanted)
        if path.is_dir():
            return Place(path, path.resolve().name)
    found = on_disk(entry) if entry is not None else hub_folder(wanted)
    if found is None:
        if entry is not None:
            raise ModelError(
                f"model {entry.name!r} is not on this machine: `copilotd pull {entry.name}` fetches it"
            )
        raise ModelError(
            f"model {wanted!r} is not on this machine: `copilotd pull` lists what can be fetched"
        )
    return Place(found, entry.name if entry is not None else wanted.rsplit("/", 1)[-1], entry)


def hub_folder(repository: str) -> Path | None:
    """The snapshot of `owner/name` in the hub's cache on disk, if it is whole."""
    owner, _, name = repository.partition("/")
    if not owner or not name or "/" in name or owner.startswith((".", "~")) or name.startswith("."):
        return None
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:  # without the local backend
        return None
    folder = Path(HF_HUB_CACHE) / f"models--{owner}--{name}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = folder / "snapshots" / revision
    return snapshot if revision and "/" not in revision and whole(snapshot) else None


def whole(folder: Path) -> bool:
    """Whether what a model needs is there: links that lead nowhere and missing shards count as missing."""
    files = [folder / "config.json", folder / "tokenizer.json"]
    try:
        if (folder / INDEX).is_file():
            shards = json.loads((folder / INDEX).read_bytes())["weight_map"].values()
            files += [folder / name for name in set(shards)]
        else:
            files.append(folder / WEIGHTS)
        return all(file.is_file() for file in files)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def has_hub_models() -> bool:
    """Whether any model of the catalogue is here that came from the hub: else there is nothing to weigh."""
    return any(entry.hub and on_disk(entry) is not None for entry in CATALOGUE)


def names() -> list[str]:
    """Of added models that are not in the catalogue."""
    try:
        found = sorted(path.name for path in models_folder().iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return [name for name in found if named(name) is None and whole(models_folder() / name)]


def smaller(entry: Entry | None) -> str:
    """The largest target on disk that is smaller and may be used unasked; "" if there is none, or `entry` is
    None."""
    if entry is None:
        return ""
    return next(
        (
            other.name
            for other in CATALOGUE
            if other.target and other.permissive and other.parameters < entry.parameters
            if on_disk(other) is not None
        ),
        "",
    )
