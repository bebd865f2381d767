"""A trained model as a folder: bf16 for transformers and for training on, int8 by row for shipping."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from pair.model import Qwen2, Shape


def save(folder: Path, shape: Shape, tensors: dict[str, Tensor], tokenizer: Path, int8: bool = False) -> None:
    """Weights under Qwen2ForCausalLM's names, config.json and the tokenizer's files."""
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if int8 and tensor.ndim == 2:
            weights[name], weights[f"{name}_scale"] = rounded(tensor)
        else:
            weights[name] = tensor.to(torch.bfloat16).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.max_tokens,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": Tokenizer.from_file(str(tokenizer / "tokenizer.json")).token_to_id("<|endoftext|>"),
        "torch_dtype": "bfloat16",
    }
    if int8:
        config["quantization_config"] = {"quant_method": "copilotd-int8-row"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)


def rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [rows, columns] and float32 [rows]: the scale that makes each row's largest entry 127."""
    scale = (matrix.float().abs().amax(dim=1) / 127).clamp(min=1e-12)
    return (matrix.float() / scale.unsqueeze(1)).round().to(torch.int8), scale


def load(folder: Path) -> Qwen2:
    """An exported folder as a model to train from or to measure, in bf16."""
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        ffn=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        max_tokens=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )
    model = Qwen2(shape)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_scale")]:
        of = name.removesuffix("_scale")
        tensors[of] = tensors[of].float() * tensors.pop(name).unsqueeze(1)
    model.load_state_dict(tensors)
    return model.bfloat16()
