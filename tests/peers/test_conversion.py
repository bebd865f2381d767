"""A checkpoint as GGUF, read back."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from peers.conversion import to_gguf
from peers.llama import CACHE, MissingPeer, binary
from peers.weights import EMBEDDED

from copilotd.models.checkpoint import Checkpoint
from copilotd.models.configuration import read_configuration
from tests.support.toy_checkpoints import TOY, build, write_model


def scalar(reader: gguf.GGUFReader, key: str) -> object:
    return reader.fields[key].contents()


def test_numbers_markers_and_weights_arrive(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "toy", build("qwen2"))
    to_gguf(folder, tmp_path / "toy.gguf")
    reader = gguf.GGUFReader(tmp_path / "toy.gguf")
    assert scalar(reader, "general.architecture") == "qwen2"
    assert scalar(reader, "qwen2.attention.head_count_kv") == TOY["num_key_value_heads"]
    assert scalar(reader, "tokenizer.ggml.pre") == "qwen2"
    tokens = scalar(reader, "tokenizer.ggml.tokens")
    assert isinstance(tokens, list)
    assert len(tokens) == TOY["vocab_size"]
    marker = scalar(reader, "tokenizer.ggml.fim_mid_token_id")
    assert tokens[marker] == "<|fim_middle|>"  # type: ignore[index]
    kinds = scalar(reader, "tokenizer.ggml.token_type")
    assert kinds[-1] == gguf.TokenType.UNUSED  # type: ignore[index]
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert "output.weight" in tensors
    down = tensors["blk.1.ffn_down.weight"]
    assert down.tensor_type == gguf.GGMLQuantizationType.BF16
    wanted = Checkpoint(folder).read("model.layers.1.mlp.down_proj.weight", 64, 96).to(torch.bfloat16)
    assert torch.equal(torch.from_numpy(down.data.copy()).view(torch.bfloat16).reshape(64, 96), wanted)
    bias = tensors["blk.0.attn_q.bias"]
    assert torch.equal(
        torch.from_numpy(bias.data.copy()),
        Checkpoint(folder).read("model.layers.0.self_attn.q_proj.bias", 64),
    )


def test_int8_by_row_is_written_in_floats(tmp_path: Path) -> None:
    to_gguf(EMBEDDED / "draft", tmp_path / "draft.gguf")
    reader = gguf.GGUFReader(tmp_path / "draft.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert "output.weight" not in tensors  # tied
    shape = read_configuration(EMBEDDED / "draft")
    rows, columns = shape.intermediate_size, shape.hidden_size
    weight = Checkpoint(EMBEDDED / "draft").weight("model.layers.0.mlp.gate_proj", rows, columns).floating()
    got = torch.from_numpy(tensors["blk.0.ffn_gate.weight"].data.copy()).view(torch.bfloat16)
    assert torch.equal(got.reshape(rows, columns), weight.to(torch.bfloat16))


def test_a_missing_llama_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.llama.BINARIES", CACHE / "nowhere")
    with pytest.raises(MissingPeer, match="bench_peers setup"):
        binary("llama-server")
