from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from copilotd.models.checkpoint import Checkpoint
from copilotd.models.configuration import read_configuration
from copilotd.models.gguf import INT8_BY_ROW, GgufError, LlamaGguf, convert, int8_by_row
from copilotd.models.tokenizer import TokenizerVocabulary
from tests.support import tiny_starter


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tiny_starter.write_gguf(path, tiny_starter.weights())
    return path


@pytest.fixture(scope="module")
def made(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    convert(path, folder, lambda done, total: None)
    return folder


def test_weights_come_back_in_transformers_names_and_order(path: Path) -> None:
    read = dict(LlamaGguf(path).weights())
    wanted = tiny_starter.weights()
    assert read.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(read[name], values, err_msg=name)


def test_int8_errs_by_half_a_step_at_most_and_keeps_zero_rows() -> None:
    weight = np.random.default_rng(1).standard_normal((5, 64), dtype=np.float32)
    weight[2] = 0
    steps, scale = int8_by_row(weight)
    assert steps.dtype == np.int8
    assert scale.dtype == np.float32
    assert np.abs(steps).max(axis=1).tolist() == [127, 127, 0, 127, 127]
    error = np.abs(steps * scale[:, None] - weight)
    assert (error <= scale[:, None] * 0.5001).all()


def test_the_folder_holds_int8_rows_with_their_scales(made: Path) -> None:
    tensors = load_file(made / "model.safetensors")
    wanted = tiny_starter.weights()
    assert {name for name in tensors if not name.endswith("_scale")} == wanted.keys()
    for name, values in wanted.items():
        if values.ndim == 1:
            np.testing.assert_array_equal(tensors[name], values)
        else:
            np.testing.assert_array_equal(tensors[name], int8_by_row(values)[0])
            np.testing.assert_array_equal(tensors[f"{name}_scale"], int8_by_row(values)[1])


def test_progress_ends_at_the_bytes_written(path: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    convert(path, tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    done, total = seen[-1]
    assert done == total == sum(t.nbytes for t in load_file(tmp_path / "model.safetensors").values())


def test_config_has_the_keys_of_transformers(made: Path) -> None:
    config = json.loads((made / "config.json").read_text())
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "vocab_size": len(tiny_starter.TOKENS),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "quantization_config": {"quant_method": INT8_BY_ROW},
    }


def test_the_tokenizer_splits_digits_and_keeps_every_byte(made: Path) -> None:
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    assert tokenizer.encode("ret  12<repo_name>").tokens == ["ret", "ĠĠ", "1", "2", "<repo_name>"]
    for text in ("a\r\n\tb\x00\x0c", "naïve – 数 🧪", "  x  =  1  \n\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_an_untied_head_is_named(tmp_path: Path) -> None:
    path = tmp_path / "untied.gguf"
    tiny_starter.write_gguf(path, tiny_starter.weights(), extra="output.weight")
    model = LlamaGguf(path)
    assert model.config()["tie_word_embeddings"] is False
    assert "lm_head.weight" in dict(model.weights())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"architecture": "qwen2"}, "qwen2"),
        ({"pre": "llama-bpe"}, "llama-bpe"),
        ({"extra": "blk.0.attn_sinks.weight"}, "attn_sinks"),
    ],
)
def test_what_cannot_be_converted_is_named(what: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    tiny_starter.write_gguf(path, tiny_starter.weights(), **what)
    with pytest.raises(GgufError, match=message):
        convert(path, tmp_path, lambda done, total: None)


@pytest.mark.parametrize("kept", [0, 3, 8, 24, 100, 400, 4000, -60_000, -1])
def test_a_cut_file_is_refused(kept: int, path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(GgufError):
        convert(cut, tmp_path, lambda done, total: None)


def test_our_loader_reads_the_folder(made: Path) -> None:
    configuration = read_configuration(made)
    assert configuration.own_forward
    assert configuration.int8_rows
    weight = Checkpoint(made).weight("model.layers.1.self_attn.k_proj", 32, 64)
    wanted = tiny_starter.weights()["model.layers.1.self_attn.k_proj.weight"]
    np.testing.assert_allclose(weight.floating().numpy(), wanted, atol=np.abs(wanted).max() / 250)
    vocabulary = TokenizerVocabulary.from_folder(made)
    assert vocabulary.control == frozenset(range(len(tiny_starter.CONTROL)))
    assert vocabulary.fim is None
    assert vocabulary.begin is None
