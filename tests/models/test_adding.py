"""Files brought by hand: what they are is checked, and their name is known afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from copilotd.cli import main
from copilotd.models import adding, catalogue, store
from copilotd.models.adding import add
from copilotd.models.configuration import read_configuration, sizes_of
from copilotd.models.errors import ModelError
from tests.support.toy_checkpoints import build, write_model, write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "brought" / "Some-Coder", build())


@pytest.fixture
def known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The catalogue's 1.5B has the shape of the folder's model."""
    sizes = sizes_of(read_configuration(folder))
    entries = tuple(
        replace(entry, sizes=sizes) if entry.name == "Qwen2.5-Coder-1.5B" else entry
        for entry in catalogue.CATALOGUE
    )
    for module in (catalogue, adding, store):
        monkeypatch.setattr(module, "CATALOGUE", entries)
    return "Qwen2.5-Coder-1.5B"


def test_a_model_of_the_catalogue_gets_its_name(folder: Path, known: str) -> None:
    added = add(folder)
    assert (added.name, added.folder, added.remarks) == (known, folder, ())
    entry = catalogue.named(known)
    assert entry is not None
    assert store.on_disk(entry) == store.models_folder() / known
    assert store.find(known).folder.resolve() == folder
    assert add(folder).name == known  # again is no error


def test_another_model_keeps_its_own(folder: Path) -> None:
    added = add(folder)
    assert added.name == "Some-Coder"
    assert 'model = "Some-Coder"' in added.remarks[0]
    assert store.find("Some-Coder").folder.resolve() == folder
    assert add(folder, "other.name").name == "other.name"
    assert store.names() == ["Some-Coder", "other.name"]


def test_the_same_shape_under_another_models_name(folder: Path, known: str) -> None:
    plain = folder.rename(folder.with_name("Qwen2.5-1.5B"))
    assert add(plain).name == "Qwen2.5-1.5B"
    assert add(plain, "qwen2.5-coder-1.5b").name == known


def test_a_snapshot_of_the_hubs_cache(folder: Path, known: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--somebody--Mine-Coder" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    assert add(snapshot).name == known
    (snapshot / "config.json").write_text(
        json.dumps(
            json.loads((snapshot / "config.json").read_text()) | {"rope_theta": 5.0, "model_type": "llama"}
        )
    )
    assert add(snapshot).name == "Mine-Coder"


def change(folder: Path, **keys: object) -> None:
    content = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps(content))


def to_gguf(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "model-q4.gguf").write_bytes(b"GGUF")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), r"is a pickle"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"no model\.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), r"holds no config\.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"<html>" * 9), r"damaged or cut short"),
        (lambda folder: change(folder, num_hidden_layers=9), r"hold no model\.layers\.8"),
        (lambda folder: change(folder, eos_token_id=151_645), r"Instruct weights.*Bring the base model"),
        (to_gguf, r"does not read GGUF.*safetensors"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(folder: Path, damage: Callable[[Path], object], words: str) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=words):
        add(folder)
    assert store.names() == []


def test_more_that_is_refused(folder: Path, known: str, tmp_path: Path) -> None:
    chat = folder.with_name("Some-Coder-Instruct")
    folder.rename(chat)
    with pytest.raises(ModelError, match="Instruct"):
        add(chat)
    chat.rename(folder)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="GGUF"):
        add(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="is no folder"):
        add(tmp_path / "nowhere")
    for name in ("../x", "", "-x", "starter", "embedded", "a/b"):
        if name:
            with pytest.raises(ModelError, match="another with --name"):
                add(folder, name)
    with pytest.raises(ModelError, match=r"its shape is not that of Qwen2\.5-Coder-7B"):
        add(folder, "Qwen2.5-Coder-7B")


def test_what_was_pulled_is_not_replaced(folder: Path, known: str) -> None:
    (store.models_folder() / known).mkdir(parents=True)
    with pytest.raises(ModelError, match="is there already"):
        add(folder)


def test_a_model_that_cannot_fill_in_is_said_to_be_one(folder: Path) -> None:
    write_tokenizer(folder, entries=257)
    assert "cannot fill in the middle" in add(folder).remarks[-1]


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "add", str(folder), "--name", "mine"]) == 0
    out = capsys.readouterr().out
    assert f"mine: {folder}" in out
    assert "copilotd reload" in out
    assert main(["models", "add", str(folder / "config.json")]) == 1
    assert "copilotd models: " in capsys.readouterr().err


def test_more_layers_than_any_model_has(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 10**12}))
    with pytest.raises(ModelError, match=r"num_hidden_layers is 10+: no model"):
        add(folder)


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ModelError, match="links"):
        add(tmp_path / "loop")
