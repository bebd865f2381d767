"""Small random models in the hub's own format, with a byte-level tokenizer, written by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from copilotd.models.catalogue import Sizes
from copilotd.models.tokenizer import _ALPHABET

MARKERS = (
    "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip

TOY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "pad_token_id": 0,
    "vocab_size": 288,
}
"""a shape; keys given to `write_model` replace these"""


def build(kind: str = "qwen2", seed: int = 0, **keys: Any) -> Any:
    """A transformers model, float32, eager attention. Weights are multiplied by 12, so that it does not loop;
    norms and biases get values too."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    make_config, make_model = {
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[kind]
    torch.manual_seed(seed)
    model = make_model(make_config(**TOY | keys, attn_implementation="eager")).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(12.0)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, model: Any, *, entries: int = 262, shard: str = "5GB") -> Path:
    """The model with a tokenizer of 256 bytes and markers up to `entries`."""
    model.save_pretrained(folder, max_shard_size=shard)
    write_tokenizer(folder, entries)
    return folder


def write_random(folder: Path, sizes: Sizes) -> None:
    """Random bfloat16 weights of these sizes, Qwen2's kind, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = {
        "model_type": "qwen2", "vocab_size": sizes.rows, "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.key_heads, "head_dim": sizes.head_size,
        "max_position_embeddings": 32_768, "rope_theta": 1e6, "tie_word_embeddings": sizes.tied,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(configuration), encoding="utf-8")
    random = torch.Generator().manual_seed(0)

    def matrix(outputs: int, inputs: int) -> torch.Tensor:
        return torch.randn(outputs, inputs, generator=random, dtype=torch.bfloat16).mul_(0.02)

    queries, keys = sizes.heads * sizes.head_size, sizes.key_heads * sizes.head_size
    named = {
        "model.embed_tokens.weight": matrix(sizes.rows, sizes.hidden),
        "model.norm.weight": torch.ones(sizes.hidden),
    }
    if not sizes.tied:
        named["lm_head.weight"] = matrix(sizes.rows, sizes.hidden)
    for layer in range(sizes.layers):
        at = f"model.layers.{layer}"
        for part, outputs in (("q", queries), ("k", keys), ("v", keys)):
            named[f"{at}.self_attn.{part}_proj.weight"] = matrix(outputs, sizes.hidden)
            named[f"{at}.self_attn.{part}_proj.bias"] = torch.zeros(outputs)
        named |= {
            f"{at}.self_attn.o_proj.weight": matrix(sizes.hidden, queries),
            f"{at}.mlp.gate_proj.weight": matrix(sizes.intermediate, sizes.hidden),
            f"{at}.mlp.up_proj.weight": matrix(sizes.intermediate, sizes.hidden),
            f"{at}.mlp.down_proj.weight": matrix(sizes.hidden, sizes.intermediate),
            f"{at}.input_layernorm.weight": torch.ones(sizes.hidden),
            f"{at}.post_attention_layernorm.weight": torch.ones(sizes.hidden),
        }
    save_file(named, folder / "model.safetensors")


def write_tokenizer(folder: Path, entries: int = 262, order: dict[str, int] | None = None) -> None:
    names = (*MARKERS, *(f"<|more_{i}|>" for i in range(entries)))[: entries - 256]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_description(names, order)), encoding="utf-8")


def tokenizer_description(
    markers: tuple[str, ...] = MARKERS, order: dict[str, int] | None = None
) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 256 + i, "content": name, **flags} for i, name in enumerate(markers)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True,
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": order or dict(_ALPHABET), "merges": []},
    }  # fmt: skip
