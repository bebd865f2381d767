"""Folders in, a working pair out; or one message that says what is wrong and what to do."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from copilotd.config import DaemonSettings
from copilotd.engine import products
from copilotd.engine.forward import DecoderRunner
from copilotd.engine.native.build import CannotBuild
from copilotd.engine.native.library import INT8, NF4
from copilotd.engine.native.products import Compiled
from copilotd.engine.native.runner import NativeRunner
from copilotd.engine.products import quantise_rows
from copilotd.models import load, quantise
from copilotd.models.errors import ModelError
from copilotd.models.load import Pair, load_pair
from copilotd.models.quantise import Processor
from tests.support.kernels import loads_here
from tests.support.toy_checkpoints import build, write_model, write_tokenizer

IDS = [3, 141, 59, 26, 53, 58, 97, 93, 238, 46, 26, 43, 38, 32, 79, 50, 28, 84, 197, 169, 39, 93, 75, 10]

KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "llama": {"kind": "llama", "tie_word_embeddings": True, "hidden_size": 48, "num_attention_heads": 3,
              "num_key_value_heads": 3},
    "window": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
}  # fmt: skip


def loaded(folder: Path, quantisation: str = "fp32", draft: str | Path = "none", **keys: Any) -> Pair:
    settings = DaemonSettings(
        model=str(folder), draft=str(draft), quantisation=quantisation, device="cpu", **keys
    )
    return load_pair(settings, lambda what, done, total: None)


def logits(pair: Pair, ids: list[int]) -> torch.Tensor:
    runner = pair.target
    cache = runner.new_cache(len(ids))
    chunks = [ids[start : start + runner.chunk] for start in range(0, len(ids), runner.chunk)]
    return torch.cat([runner.step(cache, chunk, len(chunk)) for chunk in chunks])


def of_transformers(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model(torch.tensor([ids])).logits[0, :, :262]
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    model = build(**KINDS[kind])
    pair = loaded(write_model(tmp_path / "model", model))
    torch.testing.assert_close(logits(pair, IDS), of_transformers(model, IDS), rtol=2e-4, atol=2e-4)


def test_the_window_is_seen(tmp_path: Path) -> None:
    """Without this the test above could pass with a window that does nothing."""
    windowed, plain = build(**KINDS["window"]), build()
    assert not torch.allclose(of_transformers(windowed, IDS)[-1], of_transformers(plain, IDS)[-1], atol=0.1)


@pytest.mark.parametrize(("quantisation", "least"), [("bf16", 0.999), ("int8", 0.998), ("nf4", 0.95)])
@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("kind", ["qwen2", "llama", "window"])
def test_quantised_logits_are_near(
    tmp_path: Path, kind: str, kernels: str, quantisation: str, least: float
) -> None:
    loads_here(quantisation, kernels)
    model = build(**KINDS[kind])
    with torch.no_grad():  # a calm model: this restless one would turn small errors into large ones
        for parameter in model.parameters():
            parameter.mul_(0.25 if parameter.dim() > 1 else 1.0)
    expected = of_transformers(model, IDS)
    got = logits(loaded(write_model(tmp_path / "model", model), quantisation, kernels=kernels), IDS)
    assert torch.cosine_similarity(got, expected, dim=1).min() > least


def test_shards_load_like_one_file(tmp_path: Path) -> None:
    model = build()
    folder = write_model(tmp_path / "model", model, shard="100KB")
    assert (folder / "model.safetensors.index.json").is_file()
    whole = loaded(write_model(tmp_path / "whole", model))
    assert torch.equal(logits(loaded(folder), IDS), logits(whole, IDS))
    next(folder.glob("model-00002-*.safetensors")).unlink()
    with pytest.raises(ModelError, match=r"model-00002-.*missing.*fetch"):
        loaded(folder)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_int8_rows_from_disk_are_those_made_here(tmp_path: Path, kernels: str) -> None:
    loads_here("int8", kernels)
    folder = write_model(tmp_path / "model", build())
    expected = logits(loaded(folder, "int8", kernels=kernels), IDS)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name, tensor in tensors.items() if tensor.dim() == 2 and "embed" not in name]:
        tensors[name], tensors[f"{name}_scale"] = quantise_rows(tensors[name])
    save_file(tensors, folder / "model.safetensors")
    change(folder, quantization_config={"quant_method": "copilotd-int8-row"})
    assert torch.equal(logits(loaded(folder, "int8", kernels=kernels), IDS), expected)
    assert loaded(folder, "auto").quantisation == "int8"
    assert torch.cosine_similarity(logits(loaded(folder, "fp32"), IDS), expected, dim=1).min() > 0.9


def test_other_architectures_go_through_transformers(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=12, max_position_embeddings=128, vocab_size=288, eos_token_id=None, pad_token_id=0,
        use_sliding_window=True, sliding_window=8, max_window_layers=1, attn_implementation="eager",
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval().float()
    pair = loaded(write_model(tmp_path / "model", model))
    expected = of_transformers(model, IDS)
    torch.testing.assert_close(logits(pair, IDS), expected, rtol=2e-4, atol=2e-4)
    assert pair.identity.speculation
    assert (pair.kernels, "transformers" in pair.why_torch) == ("torch", True)
    cache = pair.target.new_cache(60)
    for start in range(0, 16, 8):
        pair.target.step(cache, IDS[start : start + 8], 0)
    first = pair.target.step(cache, IDS[16:18], 2)
    pair.target.step(cache, [1, 2, 3], 1)
    cache.truncate(16)
    assert torch.equal(pair.target.step(cache, [*IDS[16:18], 9, 9], 4)[:2], first)


# ---- kernels -----------------------------------------------------------------------------------------------


def test_compiled_kernels_run_a_model_where_they_can(tmp_path: Path) -> None:
    loads_here("nf4", "auto")
    folder = write_model(tmp_path / "model", build())
    pair = loaded(folder, "nf4", draft=folder)
    assert isinstance(pair.target, NativeRunner)
    assert isinstance(pair.draft, NativeRunner)
    assert (pair.identity.speculation, pair.identity.cache) == (True, True)
    assert (pair.kernels, pair.why_torch) == ("compiled", "")
    for runner, head in ((pair.target, INT8), (pair.draft, NF4)):
        kinds = [
            product.structure.kind for product in runner.decoder.products if isinstance(product, Compiled)
        ]
        assert kinds == [*[NF4] * 8, head]
    for settings in (
        {"quantisation": "int8", "kernels": "torch"},
        {"quantisation": "fp32"},
        {"quantisation": "bf16"},
    ):
        other = loaded(folder, **settings)
        assert isinstance(other.target, DecoderRunner)
        assert (other.kernels, settings.get("kernels", settings["quantisation"]) in other.why_torch) == (
            "torch",
            True,
        )


def test_sizes_the_kernels_do_not_know(tmp_path: Path) -> None:
    """Then torch computes what stands between the compiled products."""
    loads_here("int8", "auto")
    folder = write_model(tmp_path / "model", build(intermediate_size=104))
    pair = loaded(folder, "int8")
    assert isinstance(pair.target, DecoderRunner)
    assert all(isinstance(product, Compiled) for product in pair.target.decoder.products)
    assert (pair.kernels, "no multiple of 16" in pair.why_torch) == ("compiled + torch", True)
    assert (pair.identity.speculation, pair.identity.cache) == (True, True)
    expected = logits(loaded(folder, "int8", kernels="torch"), IDS)
    assert torch.cosine_similarity(logits(pair, IDS), expected, dim=1).min() > 0.9


@pytest.mark.parametrize(
    "trouble", ["there is no C compiler: install gcc", "the compiled kernels do not sum exactly"]
)
def test_without_compiled_kernels_torchs_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def exact() -> bool:
        if "exactly" in trouble:
            return False
        raise CannotBuild(trouble)

    folder = write_model(tmp_path / "model", build())
    expected = logits(loaded(folder, "int8", kernels="torch"), IDS)
    monkeypatch.setattr(quantise, "exact", exact)
    assert quantise.why_not_compiled() == trouble
    pair = loaded(folder, "int8", draft=folder)
    assert isinstance(pair.target, DecoderRunner)
    assert torch.equal(logits(pair, IDS), expected)
    assert (pair.kernels, pair.why_torch) == ("torch", trouble)


def test_nf4_is_taken_where_it_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    loads_here("nf4", "auto")
    cpu = Processor(torch.device("cpu"), compiled=True)
    for seconds, expected in ((0.5, "nf4"), (0.86, "nf4"), (0.88, "int8"), (2.0, "int8")):

        def least(held: list[Any], x: torch.Tensor, nf4: float = seconds) -> float:
            return nf4 if held[0].structure.kind == NF4 else 1.0

        monkeypatch.setattr(quantise, "_least_time", least)
        assert quantise.fastest(64, 64, cpu) == expected, seconds


# ---- pairs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "draft"), [(288, 272), (272, 304)])
def test_padding_of_vocabularies_is_no_difference(tmp_path: Path, target: int, draft: int) -> None:
    """H12: one tokenizer, tables of different sizes."""
    big = write_model(tmp_path / "big", build(vocab_size=target, num_hidden_layers=8))
    small = write_model(tmp_path / "small", build(vocab_size=draft, seed=1, num_hidden_layers=1))
    pair = loaded(big, draft=small)
    assert pair.draft is not None
    assert not pair.warnings
    assert pair.target.vocabulary == pair.draft.vocabulary == pair.vocabulary.size == 262
    for runner in (pair.target, pair.draft):
        assert runner.step(runner.new_cache(8), [1, 2, 3], 2).shape == (2, 262)


def test_swapped_ids_are_refused_and_the_target_goes_on_alone(tmp_path: Path) -> None:
    big = write_model(tmp_path / "big", build())
    small = write_model(tmp_path / "small", build(seed=1, num_hidden_layers=1))
    content = json.loads((small / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (small / "tokenizer.json").write_text(json.dumps(content))
    pair = loaded(big, draft=small)
    assert pair.draft is None
    assert len(pair.warnings) == 1
    assert "token 97 stands for different text" in pair.warnings[0]
    write_tokenizer(small, entries=262)
    content = json.loads((small / "tokenizer.json").read_text())
    for entry, other in (("id", 257), ("id", 258)):
        content["added_tokens"][other - 256][entry] = 515 - other
    (small / "tokenizer.json").write_text(json.dumps(content))
    assert "token 257" in loaded(big, draft=small).warnings[0]


def test_a_heavy_draft_is_said_to_be_one(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", build())
    pair = loaded(folder, draft=folder)
    assert pair.draft is not None
    assert ["100%" in warning for warning in pair.warnings] == [True]


def test_a_draft_that_may_pay_is_not_complained_about(tmp_path: Path) -> None:
    """A third of the target's bytes, as the 0.5B's beside the 1.5B."""
    target = write_model(tmp_path / "target", build(num_hidden_layers=8))
    pair = loaded(target, draft=write_model(tmp_path / "draft", build(num_hidden_layers=2)))
    assert pair.draft is not None
    assert pair.warnings == []


# ---- what can be wrong -------------------------------------------------------------------------------------


def change(folder: Path, **keys: Any) -> None:
    """Set keys of config.json; None takes one away."""
    content = json.loads((folder / "config.json").read_text()) | keys
    content = {key: value for key, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def cut_at_the_end(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncated_norm(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].clone()
    save_file(tensors, folder / "model.safetensors")


def not_a_number(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def without_a_matrix(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"model\.safetensors is damaged or cut short.*fetch"),
        (not_a_number, r"gives no numbers \(NaN\).*fetch"),
        (cut_at_the_end, r"model\.safetensors is damaged or cut short.*fetch"),
        (pickled, r"pytorch_model\.bin is a pickle.*safetensors"),
        (truncated_norm, r"model\.norm\.weight is \[63\], config\.json says \[64\]"),
        (without_a_matrix, r"hold no model\.layers\.1\.mlp\.up_proj\.weight"),
        (lambda folder: (folder / "config.json").write_text("{}"), r"config\.json.*model_type.*fetch"),
        (lambda folder: (folder / "config.json").write_text(""), r"config\.json.*fetch"),
        (lambda folder: (folder / "config.json").unlink(), r"config\.json is missing.*fetch"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json is missing.*fetch"),
        (lambda folder: change(folder, hidden_size=None), r"config\.json: hidden_size is 0.*fetch"),
        (lambda folder: change(folder, vocab_size="many"), r"config\.json.*vocab_size"),
        (lambda folder: change(folder, num_key_value_heads=3), r"num_key_value_heads is 3"),
        (lambda folder: change(folder, hidden_act="gelu"), r"hidden_act is 'gelu'"),
        (lambda folder: change(folder, max_position_embeddings=0), r"max_position_embeddings is 0"),
        (lambda folder: change(folder, rms_norm_eps=-1.0), r"rms_norm_eps is -1\.0"),
        (lambda folder: change(folder, rope_theta=0.0, rope_parameters=None), r"rope_theta is 0\.0"),
        (lambda folder: pipe(folder / "config.json"), r"config\.json is no file"),
        (lambda folder: change(folder, rope_scaling={"type": "yarn", "factor": 4.0}), r"rope scaling 'yarn'.*null"),
        (lambda folder: change(folder, rope_parameters={"rope_type": "llama3"}), r"rope scaling 'llama3'"),
        (lambda folder: change(folder, quantization_config={"quant_method": "gptq"}), r"'gptq'.*unquantised"),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_remedy(tmp_path: Path, damage: Any, message: str) -> None:
    folder = write_model(tmp_path / "model", build())
    damage(folder)
    with pytest.raises(ModelError, match=message):
        loaded(folder)


def test_damage_is_found_by_compiled_kernels_too(tmp_path: Path) -> None:
    loads_here("int8", "auto")
    folder = write_model(tmp_path / "model", build())
    not_a_number(folder)
    with pytest.raises(ModelError, match=r"gives no numbers \(NaN\).*fetch"):
        loaded(folder, "int8")


@pytest.mark.parametrize("quantisation", ["fp32", "int8"])
def test_a_damaged_draft_is_left_out(tmp_path: Path, quantisation: str) -> None:
    """All that it could propose is the first token, whatever stands there."""
    target = write_model(tmp_path / "target", build(num_hidden_layers=8))
    draft = write_model(tmp_path / "draft", build(num_hidden_layers=2))
    not_a_number(draft)
    pair = loaded(target, quantisation, draft=draft)
    assert (pair.draft, pair.draft_name) == (None, None)
    (said,) = pair.warnings
    assert re.match(rf"There is no draft model: {draft}: .*no numbers \(NaN\).*fetch", said)


def test_an_unknown_model_is_not_looked_for_on_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    for name in ("nobody/no-such-model", "Qwen2.5-Coder-32B", "no such model", str(tmp_path / "nowhere"), ""):
        with pytest.raises(ModelError, match=r"not on this machine.*copilotd pull"):
            loaded(Path(name) if name.startswith("/") else name)  # type: ignore[arg-type]


def test_a_hub_snapshot_on_disk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--somebody--small"
    write_model(repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567", build())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    settings = DaemonSettings(model="somebody/small", draft="none", quantisation="fp32", device="cpu")
    pair = load_pair(settings, lambda what, done, total: None)
    assert pair.target_name == "small"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    big = write_model(tmp_path / "big", build())
    small = write_model(tmp_path / "small", build(num_hidden_layers=1))
    real = load._Reader.decoder

    def fails(reader: Any, progress: Any, *, draft: bool) -> Any:
        if draft or not only_draft:
            raise error
        return real(reader, progress, draft=draft)

    monkeypatch.setattr(load._Reader, "decoder", fails)
    only_draft = True
    pair = loaded(big, draft=small)
    assert pair.draft is None
    assert len(pair.warnings) == 1
    assert "small does not fit into the memory" in pair.warnings[0]
    only_draft = False
    with pytest.raises(ModelError, match=r"big does not fit into the memory.*smaller model"):
        loaded(big, draft=small)


def test_progress_ends_a_load(tmp_path: Path) -> None:
    class EndedError(Exception):
        pass

    seen: list[tuple[str, float, float]] = []

    def progress(what: str, done: float, total: float) -> None:
        seen.append((what, done, total))
        if done == total:
            raise EndedError

    folder = write_model(tmp_path / "model", build())
    with pytest.raises(EndedError):
        load_pair(
            DaemonSettings(model=str(folder), draft="none", quantisation="int8", device="cpu"), progress
        )
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][2] == pytest.approx((folder / "model.safetensors").stat().st_size / 1e6)


def test_nothing_heavy_is_imported_for_our_own_forward(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", build())
    code = (
        "import sys; from copilotd.config import DaemonSettings; from copilotd.models.load import load_pair\n"
        f"load_pair(DaemonSettings(model={str(folder)!r}, draft='none', device='cpu'), lambda *a: None)\n"
        "print([name for name in ('transformers', 'bitsandbytes', 'kernels', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.fixture
def no_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without the library; nothing remembers the routine of this one."""
    find = importlib.util.find_spec
    products._nf4_routine.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name == "bitsandbytes" else find(name, *rest),
        )
        patch.setitem(sys.modules, "bitsandbytes", None)
        yield
    products._nf4_routine.cache_clear()


@pytest.mark.usefixtures("no_bitsandbytes")
def test_h30_nf4_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for: a clear message. Left to us: what there is."""
    folder = write_model(tmp_path / "model", build())
    gpu = Processor(torch.device("cuda"))
    remedy = r'"nf4" needs a C compiler, or bitsandbytes.*set quantisation to "auto" or "int8"'
    with pytest.raises(ModelError, match=remedy):
        loaded(folder, "nf4", kernels="torch")
    with pytest.raises(ModelError, match=r'"nf4" needs bitsandbytes: pip install'):
        quantise.layer_product(OnGpu(), "nf4", gpu)  # type: ignore[arg-type]
    monkeypatch.setattr(load, "NF4_PARAMETERS", 1000)
    assert loaded(folder, "auto", kernels="torch").quantisation == "int8"
    assert quantise.fastest(64, 64, gpu) == "int8"


class OnGpu:
    """A weight as if it lay on a GPU."""

    values = torch.zeros(64, 64)

    def floating(self) -> OnGpu:
        return self

    def to(self, device: torch.device) -> torch.Tensor:
        return torch.zeros(64, 64)


def test_auto_never_takes_nf4_for_a_small_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast it is; a draft's quantisation only changes what is accepted."""
    monkeypatch.setattr(load, "fastest", lambda *shape: "fp32")
    big = write_model(tmp_path / "big", build())
    pair = loaded(big, "auto", draft=write_model(tmp_path / "small", build(num_hidden_layers=1)))
    assert pair.quantisation == "int8"
    assert isinstance(pair.draft, DecoderRunner)
    assert not pair.draft.rows_free
    monkeypatch.setattr(load, "NF4_PARAMETERS", 1000)
    assert loaded(big, "auto").quantisation == "fp32"


def test_auto_on_an_empty_machine_is_the_embedded_pair_and_says_what_would_be_better() -> None:
    chosen = load_pair(DaemonSettings(device="cpu", quantisation="int8"), lambda what, done, total: None)
    assert (chosen.target_name, chosen.draft_name) == ("embedded", "embedded-draft")
    assert chosen.warnings == []
    assert chosen.offers[0].name == "starter"
    named = load_pair(
        DaemonSettings(device="cpu", quantisation="int8", model="embedded"), lambda what, done, total: None
    )
    assert (named.warnings, named.offers) == ([], ())
