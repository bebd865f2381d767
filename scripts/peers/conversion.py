"""A Qwen2 checkpoint as GGUF, for llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from copilotd.engine.forward import Shape
from copilotd.models.checkpoint import Checkpoint
from copilotd.models.configuration import Configuration, decoder_shape, read_configuration

ROLES = {
    "<|fim_prefix|>": "fim_pre",
    "<|fim_suffix|>": "fim_suf",
    "<|fim_middle|>": "fim_mid",
    "<|fim_pad|>": "fim_pad",
    "<|repo_name|>": "fim_rep",
    "<|file_sep|>": "fim_sep",
    "<|endoftext|>": "eos",
}
"""markers by the name of the key that holds their id"""


def to_gguf(folder: Path, file: Path) -> None:
    """Write `file`, matrices in BF16, vectors in float32. Raises ModelError, OSError."""
    configuration = read_configuration(folder)
    shape = decoder_shape(configuration, folder / "config.json")
    part = file.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen2", use_temp_file=False)
    writer.add_name(folder.name)
    writer.add_context_length(shape.max_tokens)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    _add_tokenizer(writer, folder / "tokenizer.json", configuration.vocab_size)
    checkpoint = Checkpoint(folder)
    tensors = list(_tensors(checkpoint, configuration, shape))
    for theirs, _, size in tensors:
        matrix = len(size) == 2
        writer.add_tensor_info(
            theirs, size, np.dtype(np.float32), prod(size) * (2 if matrix else 4),
            raw_dtype=gguf.GGMLQuantizationType.BF16 if matrix else None,
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, ours, size in tensors:
        writer.write_tensor_data(_stored(checkpoint, ours, size))
    writer.close()
    part.rename(file)


def _tensors(
    checkpoint: Checkpoint, configuration: Configuration, shape: Shape
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(their name, ours, size) of every tensor, in the order of the file."""
    entries, hidden, ffn = configuration.vocab_size, shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
    of_a_layer: dict[str, tuple[str, tuple[int, ...]]] = {
        "input_layernorm.weight": ("attn_norm.weight", (hidden,)),
        "self_attn.q_proj.weight": ("attn_q.weight", (queries, hidden)),
        "self_attn.q_proj.bias": ("attn_q.bias", (queries,)),
        "self_attn.k_proj.weight": ("attn_k.weight", (keys, hidden)),
        "self_attn.k_proj.bias": ("attn_k.bias", (keys,)),
        "self_attn.v_proj.weight": ("attn_v.weight", (keys, hidden)),
        "self_attn.v_proj.bias": ("attn_v.bias", (keys,)),
        "self_attn.o_proj.weight": ("attn_output.weight", (hidden, queries)),
        "post_attention_layernorm.weight": ("ffn_norm.weight", (hidden,)),
        "mlp.gate_proj.weight": ("ffn_gate.weight", (ffn, hidden)),
        "mlp.up_proj.weight": ("ffn_up.weight", (ffn, hidden)),
        "mlp.down_proj.weight": ("ffn_down.weight", (hidden, ffn)),
    }
    yield "token_embd.weight", "model.embed_tokens.weight", (entries, hidden)
    for layer in range(shape.layers):
        for ours, (theirs, size) in of_a_layer.items():
            yield f"blk.{layer}.{theirs}", f"model.layers.{layer}.{ours}", size
    yield "output_norm.weight", "model.norm.weight", (hidden,)
    if not configuration.tie_word_embeddings and "lm_head.weight" in checkpoint:
        yield "output.weight", "lm_head.weight", (entries, hidden)


def _stored(checkpoint: Checkpoint, name: str, size: tuple[int, ...]) -> Any:
    if len(size) == 1:
        return checkpoint.read(name, *size).float().numpy()
    weight = checkpoint.weight(name.removesuffix(".weight"), size[0], size[1]).floating()
    return weight.to(torch.bfloat16).view(torch.int16).numpy()


def _add_tokenizer(writer: gguf.GGUFWriter, file: Path, entries: int) -> None:
    described = json.loads(file.read_bytes())
    model = described["model"]
    tokens = [f"[PAD{i}]" for i in range(entries)]
    kinds = [gguf.TokenType.UNUSED] * entries
    for token, at in model["vocab"].items():
        tokens[at], kinds[at] = token, gguf.TokenType.NORMAL
    for added in described["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], gguf.TokenType.CONTROL
        if added["content"] in ROLES:
            writer.add_uint32(f"tokenizer.ggml.{ROLES[added['content']]}_token_id", added["id"])
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
