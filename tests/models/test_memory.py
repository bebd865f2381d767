"""What is computed from shapes is what loaded models take."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from copilotd.config import DaemonSettings
from copilotd.engine.forward import DecoderRunner
from copilotd.engine.native.build import usable
from copilotd.engine.products import nf4_is_fused
from copilotd.models import memory
from copilotd.models.catalogue import CATALOGUE, named
from copilotd.models.checkpoint import Weight
from copilotd.models.configuration import read_configuration, sizes_of
from copilotd.models.load import load_model
from copilotd.models.memory import Quantisation
from copilotd.models.quantise import Processor, layer_product
from copilotd.models.store import Place, embedded_folder
from tests.support.kernels import holds_here, loads_here
from tests.support.toy_checkpoints import (
    build,
    tokenizer_description,
    write_model,
    write_random,
    write_tokenizer,
)

QUANTISATIONS: tuple[Quantisation, ...] = ("int8", "nf4", "bf16", "fp32")


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
@pytest.mark.parametrize("shape", [(64, 64), (33, 64), (96, 100), (1, 128)])
def test_a_product(quantisation: Quantisation, shape: tuple[int, int]) -> None:
    holds_here(quantisation)
    product = layer_product(Weight(torch.randn(shape)), quantisation, Processor(torch.device("cpu")))
    assert memory.product_bytes(*shape, quantisation, "cpu") == product.nbytes


@pytest.mark.parametrize("quantisation", ["int8", "nf4"])
@pytest.mark.parametrize("shape", [(64, 64), (33, 64), (96, 100), (1, 128), (4864, 896)])
def test_a_compiled_product(quantisation: Quantisation, shape: tuple[int, int]) -> None:
    loads_here(quantisation, "auto")
    product = layer_product(Weight(torch.randn(shape)), quantisation, Processor(torch.device("cpu"), True))
    assert memory.product_bytes(*shape, quantisation, "cpu", compiled=True) == product.nbytes


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize(("tied", "draft"), [(True, False), (False, False), (True, True)])
def test_a_loaded_model_by_its_own_account(
    tmp_path: Path, quantisation: Quantisation, kernels: str, tied: bool, draft: bool
) -> None:
    loads_here(quantisation, kernels)
    folder = write_model(
        tmp_path / "model",
        build(
            hidden_size=192,
            intermediate_size=512,
            num_attention_heads=6,
            vocab_size=2000,
            tie_word_embeddings=tied,
        ),
    )
    model = load_model(
        Place(folder, "m"),
        DaemonSettings(quantisation=quantisation, kernels=kernels),
        torch.device("cpu"),
        lambda *words: None,
        draft=draft,
    )
    of = sizes_of(read_configuration(folder))
    computed = memory.footprint(
        of, quantisation, "cpu", draft=draft, context_tokens=600, compiled=kernels == "auto"
    )
    assert computed.weights == pytest.approx(model.memory_bytes, rel=0.01)
    assert computed.read_per_token == pytest.approx(model.bytes_per_token, rel=0.01)
    if quantisation in ("int8", "nf4"):
        assert computed.cache == model.runner.cache_bytes(600)


PROCESS = """
import sys, torch
from pathlib import Path
from copilotd.config import DaemonSettings
from copilotd.models.load import load_model
from copilotd.models.store import Place

torch.set_num_threads(1)
settings = DaemonSettings(quantisation=sys.argv[2])
model = load_model(Place(Path(sys.argv[1]), "m"), settings, torch.device("cpu"), lambda *a: None, draft=False)
cache = model.runner.new_cache(2048)
model.runner.step(cache, [1], 1)
cache._keys.fill_(0.0), cache._values.fill_(0.0)
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["VmRSS"].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_with_a_model_of_real_size_within_a_tenth(half_billion: Path) -> None:
    """By the kernel's account. The second load reads what the first kept: the source's pages, which the kernel
    can take back at any time, are not counted."""
    compiled = usable()
    quantisation: Quantisation = "nf4" if compiled or nf4_is_fused() else "int8"
    for _ in range(2):
        command = [sys.executable, "-P", "-c", PROCESS, str(half_billion), quantisation]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
    entry = named("Qwen2.5-Coder-0.5B")
    assert entry is not None
    computed = memory.footprint(
        entry.sizes, quantisation, "cpu", draft=False, context_tokens=2048, compiled=compiled
    )
    assert memory.process_bytes(computed, None, 1, "cpu") == pytest.approx(int(done.stdout), rel=0.1)


@pytest.fixture(scope="module")
def half_billion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of the exact shape of the 0.5B, and a tokenizer with as many entries."""
    entry = named("Qwen2.5-Coder-0.5B")
    assert entry is not None
    folder = tmp_path_factory.mktemp("half-billion")
    write_random(folder, entry.sizes)
    write_tokenizer(folder, order=many_tokens(151_643))
    return folder


def many_tokens(number: int) -> dict[str, int]:
    """The bytes, and words of them."""
    letters = list(tokenizer_description()["model"]["vocab"])
    words = (f"{a}{b}{c}" for a in letters for b in letters[33:120] for c in letters[33:120])
    return {word: at for at, word in enumerate([*letters, *islice(words, number - len(letters))])}


def test_the_embedded_pair_and_the_catalogue_say_the_same() -> None:
    for name, role in (("embedded", "target"), ("embedded-draft", "draft")):
        entry = named(name)
        assert entry is not None
        folder = embedded_folder(role)
        assert sizes_of(read_configuration(folder)) == entry.sizes
        settings = DaemonSettings(quantisation="int8", kernels="torch")
        model = load_model(
            Place(folder, name), settings, torch.device("cpu"), lambda *words: None, draft=role == "draft"
        )
        assert isinstance(model.runner, DecoderRunner)
        computed = memory.footprint(
            entry.sizes, "int8", "cpu", draft=role == "draft", context_tokens=512, int8_files=True
        )
        assert computed.weights == pytest.approx(model.memory_bytes, rel=0.1)
        assert computed.cache == model.runner.cache_bytes(512)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen2.5-Coder-0.5B", 0.49), ("Qwen2.5-Coder-1.5B", 1.54), ("Qwen2.5-Coder-3B", 3.09),
        ("Qwen2.5-Coder-7B", 7.61), ("Qwen2.5-Coder-14B", 14.7), ("Qwen2.5-Coder-32B", 32.5),
    ],
)  # fmt: skip
def test_parameters_are_those_on_the_models_cards(name: str, billions: float) -> None:
    entry = named(name)
    assert entry is not None
    assert entry.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_more_bits_take_more_memory() -> None:
    for entry in CATALOGUE:
        weights = [
            memory.footprint(entry.sizes, quantisation, "cuda", draft=False, context_tokens=2048).weights
            for quantisation in ("nf4", "int8", "bf16", "fp32")
        ]
        assert weights == sorted(weights)
