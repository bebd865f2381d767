"""Where models are found, and that half of one is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from copilotd.models import store
from copilotd.models.catalogue import CATALOGUE, Entry, named
from copilotd.models.errors import ModelError

REVISION = "0123456789abcdef0123456789abcdef01234567"
MODEL = named("Qwen2.5-Coder-1.5B")
assert MODEL is not None


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def snapshot(hub_cache: Path, entry: Entry) -> Path:
    """As the hub's library lays it out: files are links to blobs."""
    repository = hub_cache / f"models--{entry.hub.replace('/', '--')}"
    folder = repository / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (repository / "blobs" / name).write_text("{}")
        (folder / name).symlink_to(Path("../../blobs") / name)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return folder


def test_our_own_folder_comes_before_the_hubs_cache(hub_cache: Path) -> None:
    assert store.on_disk(MODEL) is None
    cached = snapshot(hub_cache, MODEL)
    assert store.on_disk(MODEL) == cached
    own = fill(store.models_folder() / MODEL.name)
    assert store.on_disk(MODEL) == own
    assert store.find("qwen/qwen2.5-coder-1.5b") == store.Place(own, MODEL.name, MODEL)
    assert store.has_hub_models()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "../../blobs/model.safetensors").unlink(),
        lambda folder: (folder / "../../refs/main").unlink(),
        lambda folder: (folder / "../../refs/main").write_text(""),
        lambda folder: (folder / "../../refs/main").write_text("../../../elsewhere"),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: shutil.rmtree(folder),
        lambda folder: (folder / store.INDEX).write_text(
            json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
        ),
        lambda folder: (folder / store.INDEX).write_text("<html>"),
    ],
)
def test_a_dangling_or_partial_cache_is_none(hub_cache: Path, damage: Callable[[Path], object]) -> None:
    """H30's neighbour: a download that was broken off is not a model."""
    damage(snapshot(hub_cache, MODEL))
    assert store.on_disk(MODEL) is None
    with pytest.raises(ModelError, match=r"not on this machine.*copilotd pull"):
        store.find(MODEL.name)


def test_a_link_that_leads_nowhere_does_not_hide_the_cache(hub_cache: Path) -> None:
    cached = snapshot(hub_cache, MODEL)
    store.models_folder().mkdir(parents=True)
    (store.models_folder() / MODEL.name).symlink_to(hub_cache / "gone")
    assert store.on_disk(MODEL) == cached


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = fill(store.models_folder() / "mine")
    fill(store.models_folder() / MODEL.name)
    fill(store.models_folder() / ".fetching-x")
    (store.models_folder() / "half").mkdir()
    assert store.names() == ["mine"]
    assert store.find("mine") == store.Place(mine, "mine")
    other = fill(tmp_path / "other")
    assert store.find(str(other)) == store.Place(other, "other")
    for nothing in ("", "../mine", "a/b/c", "/", "nobody/nothing", "-/-", "~no-such-person/model"):
        if nothing != "/":
            with pytest.raises(ModelError, match="not on this machine"):
                store.find(nothing)


def test_what_comes_with_the_package_is_there() -> None:
    there = {entry.name for entry in CATALOGUE if store.on_disk(entry) is not None}
    assert there == {"embedded", "embedded-draft"}
