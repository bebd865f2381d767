"""A second start reads what the first one quantised, and computes the same."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from copilotd.config import DaemonSettings
from copilotd.engine.products import pack_cuda_nf4
from copilotd.models import kept, load, memory, quantise
from copilotd.models.checkpoint import Weight
from copilotd.models.memory import Quantisation
from copilotd.models.quantise import Processor
from copilotd.models.store import Place
from tests.support.kernels import loads_here
from tests.support.toy_checkpoints import build, write_model

IDS = [3, 141, 59, 26, 53, 58, 97, 93]


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LEAST_BYTES", 1)
    monkeypatch.setattr(kept, "SPARE_BYTES", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", build(intermediate_size=104))  # no whole tile, no whole block


def logits(folder: Path, quantisation: str, draft: bool = False, kernels: str = "auto") -> torch.Tensor:
    model = load.load_model(
        Place(folder, "m"),
        DaemonSettings(quantisation=quantisation, kernels=kernels),
        torch.device("cpu"),
        lambda *words: None,
        draft=draft,
    )
    cache = model.runner.new_cache(64)
    return model.runner.step(cache, IDS, len(IDS))


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A word for every matrix that is quantised."""
    words: list[str] = []
    real = quantise.pack

    def counted(weight: object, quantisation: str, device: object) -> object:
        words.append(quantisation)
        return real(weight, quantisation, device)  # type: ignore[arg-type]

    monkeypatch.setattr(load, "pack", counted)
    return words


def there() -> list[str]:
    return sorted(path.name for path in kept.root().iterdir()) if kept.root().exists() else []


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("quantisation", ["int8", "nf4"])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_to_the_bit(folder: Path, packed: list[str], kernels: str, quantisation: str, draft: bool) -> None:
    loads_here(quantisation, kernels)
    first = logits(folder, quantisation, draft, kernels)
    assert len(packed) == 2 * 4 + 1
    assert torch.equal(logits(folder, quantisation, draft, kernels), first)
    assert len(packed) == 2 * 4 + 1
    (name,) = there()
    assert (kept.root() / name).stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in (kept.root() / name).iterdir())


def test_other_weights_are_quantised_anew(folder: Path, packed: list[str]) -> None:
    first = logits(folder, "int8")
    write_model(folder, build(intermediate_size=104, seed=1))
    assert not torch.equal(logits(folder, "int8"), first)
    assert len(packed) == 18
    logits(folder, "int8", draft=True)  # a draft's head is another
    assert len(there()) == 3


def test_other_kernels_have_another_layout(folder: Path, packed: list[str]) -> None:
    """Of which both are kept, beside each other."""
    loads_here("int8", "auto")
    first = [logits(folder, "int8", kernels=kernels) for kernels in ("auto", "torch")]
    assert len(packed) == 18
    again = [logits(folder, "int8", kernels=kernels) for kernels in ("auto", "torch")]
    assert len(packed) == 18
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert torch.cosine_similarity(*first, dim=1).min() > 0.9


def test_other_weights_of_the_same_length_and_time_are_quantised_anew(
    folder: Path, packed: list[str]
) -> None:
    """As an image or a copy that keeps times puts them there."""
    weights = folder / "model.safetensors"
    before = weights.stat()
    first = logits(folder, "int8")
    write_model(folder, build(intermediate_size=104, seed=1))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not torch.equal(logits(folder, "int8"), first)
    assert len(packed) == 18


def test_another_head_by_config_json_is_quantised_anew(folder: Path, packed: list[str]) -> None:
    first = logits(folder, "int8")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tie_word_embeddings": True}))
    assert not torch.equal(logits(folder, "int8"), first)
    assert len(packed) == 18


def test_weights_that_are_replaced_during_a_load(
    folder: Path, tmp_path: Path, packed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the old ones became is not taken for the new ones'."""
    other = write_model(tmp_path / "other", build(intermediate_size=104, seed=1)) / "model.safetensors"
    real = load._quantisation

    def meanwhile(*words: object, **more: object) -> object:
        other.replace(folder / "model.safetensors")
        return real(*words, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(load, "_quantisation", meanwhile)
        first = logits(folder, "int8")
    assert not torch.equal(logits(folder, "int8"), first)
    assert len(packed) == 18


@pytest.mark.parametrize("damage", ["missing", "cut", "swapped"])
def test_what_is_damaged_is_made_again(folder: Path, packed: list[str], damage: str) -> None:
    first = logits(folder, "int8")
    file = kept.root() / there()[0] / "model.layers.1.safetensors"
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    else:
        shutil.copy(file.with_name("head.safetensors"), file)
    assert torch.equal(logits(folder, "int8"), first)
    assert len(packed) > 9


def test_a_load_that_ended_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class EndedError(Exception):
        pass

    def end(what: str, done: float, total: float) -> None:
        if done > total / 3:
            raise EndedError

    with pytest.raises(EndedError):
        load.load_model(
            Place(folder, "m"), DaemonSettings(quantisation="int8"), torch.device("cpu"), end, draft=False
        )
    assert there() == []


def test_a_killed_load_is_cleared_away_and_old_ones_go(folder: Path, tmp_path: Path) -> None:
    (kept.root() / ".0123.99999999").mkdir(parents=True)
    for seed in range(kept.MOST + 2):
        logits(write_model(tmp_path / str(seed), build(seed=seed)), "int8")
    assert len(there()) == kept.MOST
    assert not [name for name in there() if name.startswith(".")]


@pytest.mark.parametrize("trouble", ["full", "a file in its place", "writing fails"])
def test_a_cache_that_cannot_be_written_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    if trouble == "full":
        monkeypatch.setattr(kept, "SPARE_BYTES", 1 << 60)
    elif trouble == "a file in its place":
        kept.root().parent.mkdir(parents=True)
        kept.root().write_text("")
    else:

        def fails(*words: object, **more: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(kept, "save_file", fails)
    first = logits(folder, "int8")
    assert torch.equal(logits(folder, "int8"), first)
    assert kept.root().is_file() or there() == []


def test_a_power_cut_leaves_all_of_it_or_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands under the final name has reached the disk: what was lost of it would be read as zeros."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def flushed(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        parts = {path.name, *(file.name for file in path.iterdir())}
        assert len(parts) == 1 + 1 + 2 + 1  # the folder, its mark, two layers, the head
        assert parts <= set(done)
        assert done.index(path.name) == len(done) - 1  # names last
        done.clear()
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    logits(folder, "int8")
    assert done == [kept.root().name]


def test_small_models_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LEAST_BYTES", 1 << 40)
    logits(folder, "int8")
    assert not kept.root().exists()


@pytest.mark.parametrize("quantisation", ["int8", "nf4"])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_parts_are_the_whole(kernels: str, quantisation: Quantisation) -> None:
    """Quantising by parts, which saves memory, gives the same bits."""
    loads_here(quantisation, kernels)
    weight = Weight(torch.randn(1000, 192))
    processor = Processor(torch.device("cpu"), compiled=kernels == "auto")
    whole = quantise.pack(weight, quantisation, processor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantise, "_PART_ELEMENTS", 64 * 192)
        parts = quantise.pack(weight, quantisation, processor)
    assert whole.tensors.keys() == parts.tensors.keys()
    assert all(torch.equal(tensor, parts.tensors[name]) for name, tensor in whole.tensors.items())


def test_a_gpus_nf4_is_kept_too(tmp_path: Path) -> None:
    """bitsandbytes' own layout, with its state; its routines for the CPU stand in for a GPU's."""
    weight = torch.randn(128, 192)
    packed = quantise.Packed("cuda-nf4", pack_cuda_nf4(weight), 128, 192)
    kept._write(tmp_path / "layer.safetensors", {"qkv": packed})
    read = kept._read(tmp_path / "layer.safetensors")["qkv"]
    assert (read.kind, read.outputs, read.inputs) == ("cuda-nf4", 128, 192)
    x = torch.randn(3, 192)
    cpu = Processor(torch.device("cpu"))
    fresh = quantise.product(packed, cpu, residual=False)
    assert torch.equal(quantise.product(read, cpu, residual=False)(x), fresh(x))
    assert torch.cosine_similarity(fresh(x).float(), x @ weight.T, dim=1).min() > 0.98
    assert memory.product_bytes(128, 192, "nf4", "cuda") == pytest.approx(fresh.nbytes, rel=0.01)
