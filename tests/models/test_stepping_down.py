"""Out of memory while loading: the next smaller model of this machine, and a word about it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from copilotd.backends.base import BackendError
from copilotd.backends.local import LocalBackend, OutOfMemoryError
from copilotd.config import DaemonSettings, Settings
from copilotd.engine.policy import Costs
from copilotd.models import catalogue, choice, load, memory, speeds, store
from copilotd.models.configuration import read_configuration, sizes_of
from copilotd.models.errors import OutOfMemory
from copilotd.models.load import load_pair
from tests.support.toy_checkpoints import build, write_model

SETTINGS = DaemonSettings(device="cpu", quantisation="int8")


def quiet(what: str, done: float, total: float) -> None:
    pass


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small models stand where the catalogue's 1.5B and 0.5B would."""
    shapes = {"Qwen2.5-Coder-1.5B": {"num_hidden_layers": 3}, "Qwen2.5-Coder-0.5B": {"num_hidden_layers": 1}}
    entries = []
    for entry in catalogue.CATALOGUE:
        if entry.name in shapes:
            folder = write_model(store.models_folder() / entry.name, build(**shapes[entry.name]))
            entry = replace(entry, sizes=sizes_of(read_configuration(folder)))
        if not entry.hub or entry.name in shapes:
            entries.append(entry)
    for module in (catalogue, choice, store):
        monkeypatch.setattr(module, "CATALOGUE", tuple(entries))


def short_of_memory(monkeypatch: pytest.MonkeyPatch, *names: str, error: Exception | None = None) -> None:
    """Targets of these names do not fit."""
    real = load._Reader.decoder

    def fails(reader: Any, progress: Any, *, draft: bool) -> Any:
        if reader._place.name in names and not draft:
            raise error or MemoryError()
        return real(reader, progress, draft=draft)

    monkeypatch.setattr(load._Reader, "decoder", fails)


def test_without_trouble_the_larger_one() -> None:
    pair = load_pair(SETTINGS, quiet)
    assert pair.target_name == "Qwen2.5-Coder-1.5B"
    assert pair.smaller == "Qwen2.5-Coder-0.5B"
    assert pair.warnings == []


@pytest.mark.parametrize("model", ["auto", "Qwen2.5-Coder-1.5B"])
@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("can't allocate memory: 5 GB")]
)
def test_the_next_smaller_one_is_loaded_and_named(
    monkeypatch: pytest.MonkeyPatch, model: str, error: Exception
) -> None:
    short_of_memory(monkeypatch, "Qwen2.5-Coder-1.5B", error=error)
    pair = load_pair(replace(SETTINGS, model=model), quiet)
    assert pair.target_name == "Qwen2.5-Coder-0.5B"
    assert len(pair.warnings) == 1
    assert "Qwen2.5-Coder-1.5B does not fit" in pair.warnings[0]
    assert "goes on with Qwen2.5-Coder-0.5B" in pair.warnings[0]


def test_where_there_is_no_smaller_one_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    short_of_memory(monkeypatch, "Qwen2.5-Coder-1.5B", "Qwen2.5-Coder-0.5B")
    with pytest.raises(OutOfMemory, match=r"Qwen2\.5-Coder-0\.5B does not fit.*smaller model"):
        load_pair(SETTINGS, quiet)


def test_what_cannot_fit_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the kernel would end the process."""
    large = next(entry for entry in catalogue.CATALOGUE if entry.name == "Qwen2.5-Coder-1.5B")
    needs = memory.footprint(large.sizes, "int8", "cpu", draft=False, context_tokens=1)
    monkeypatch.setattr(load, "free_bytes", lambda device: needs.weights + needs.transient - 1)
    short_of_memory(monkeypatch, large.name, error=AssertionError("it was tried"))
    pair = load_pair(replace(SETTINGS, model=large.name), quiet)
    assert pair.target_name == "Qwen2.5-Coder-0.5B"
    assert "0.0 are free" in pair.warnings[0]


def test_no_memory_left_to_work_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights had room, the first steps do not."""
    from copilotd.backends import local

    real = local.prefill_tokens_per_s
    calls: list[int] = []

    def fails(runner: Any) -> float:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError
        return real(runner)

    monkeypatch.setattr(local, "prefill_tokens_per_s", fails)
    backend = LocalBackend.load(Settings(daemon=SETTINGS), quiet)
    about = backend.describe()
    assert about.target == "Qwen2.5-Coder-0.5B"
    assert "Qwen2.5-Coder-1.5B leaves no memory" in about.remarks[0]
    backend.close()
    shutil.rmtree(store.models_folder() / "Qwen2.5-Coder-0.5B")
    monkeypatch.setattr(store, "smaller", lambda entry: "")
    calls.clear()
    with pytest.raises(OutOfMemoryError):
        LocalBackend.load(Settings(daemon=SETTINGS), quiet)


def test_a_load_remembers_what_it_measured() -> None:
    backend = LocalBackend.load(Settings(daemon=SETTINGS), quiet)
    found = speeds.read().of("Qwen2.5-Coder-1.5B", "int8", "cpu")
    assert found is not None
    assert found.tokens_per_s > 0
    backend.close()
    before = speeds.read().loads
    pair = load_pair(SETTINGS, quiet)
    LocalBackend(pair, SETTINGS, Costs(target=((1, 1.0),))).close()  # costs that were given, not measured
    assert speeds.read().loads == before


def test_a_name_that_is_not_there_stays_an_error() -> None:
    with pytest.raises(BackendError, match="not on this machine"):
        LocalBackend.load(Settings(daemon=replace(SETTINGS, model="Qwen2.5-Coder-9B")), quiet)


def test_loading_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files in place nothing is fetched, not even a HEAD; nor without them."""

    def no_network(*words: object, **more: object) -> None:
        raise AssertionError("the network was asked")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(f"socket.socket.{name}", no_network)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    assert load_pair(SETTINGS, quiet).target_name == "Qwen2.5-Coder-1.5B"
    shutil.rmtree(store.models_folder())
    assert load_pair(SETTINGS, quiet).target_name == "embedded"
