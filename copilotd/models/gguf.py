"""A GGUF file of the Llama family, written anew as a folder that loads without the `gguf` package.

The folder has `config.json` (the keys transformers uses for Llama), `tokenizer.json` and
`model.safetensors`. Linear and embedding weights are int8 by row: `X.weight` int8 [out, in] and
`X.weight_scale` float32 [out], weight = int8 · scale. Norm weights are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

INT8_BY_ROW = "copilotd-int8-row"
CONTROL = gguf.TokenType.CONTROL

Floats = npt.NDArray[np.float32]

_OUTSIDE_THE_LAYERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_OF_A_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufError(Exception):
    """The file is not a GGUF that can be converted; the message says why."""


class LlamaGguf:
    """An open GGUF file with `general.architecture = llama` and a GPT-2 style byte-level BPE."""

    def __init__(self, path: Path) -> None:
        """Raises GgufError for a damaged file, another architecture or another kind of tokenizer."""
        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, IndexError, OverflowError, UnicodeDecodeError) as error:
            raise GgufError(f"{path.name} is not a readable GGUF file") from error
        for key, wanted in (("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2")):
            if self._value(key) != wanted:
                raise GgufError(
                    f"{path.name}: {key} is {self._value(key)!r}; only {wanted!r} can be converted"
                )

    def _value(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise GgufError(f"the GGUF file has no {key}")
        return default

    def config(self) -> dict[str, Any]:
        """`config.json` in the keys of transformers' LlamaConfig."""
        width = self._value("llama.embedding_length")
        heads = self._value("llama.attention.head_count")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": width,
            "intermediate_size": self._value("llama.feed_forward_length"),
            "num_hidden_layers": self._value("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._value("llama.attention.head_count_kv", heads),
            "head_dim": self._value("llama.rope.dimension_count", width // heads),
            "max_position_embeddings": self._value("llama.context_length"),
            "vocab_size": len(self._value("tokenizer.ggml.tokens")),
            "hidden_act": "silu",
            "rms_norm_eps": _shortest(self._value("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": _shortest(self._value("llama.rope.freq_base", 10000.0)),
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in self._reader.tensors),
            "bos_token_id": self._value("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._value("tokenizer.ggml.eos_token_id"),
            "quantization_config": {"quant_method": INT8_BY_ROW},
        }

    def tokenizer(self) -> Tokenizer:
        """Byte-level BPE; digits one by one, as the `smollm` pre-tokenizer does."""
        pre = self._value("tokenizer.ggml.pre")
        if pre != "smollm":
            raise GgufError(f"the GGUF file's pre-tokenizer is {pre!r}; only 'smollm' can be converted")
        tokens: list[str] = self._value("tokenizer.ggml.tokens")
        kinds: list[int] = self._value("tokenizer.ggml.token_type")
        left_right = (merge.split(" ") for merge in self._value("tokenizer.ggml.merges"))
        merges = [(left, right) for left, right in left_right]
        tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        control = (token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL)
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        return tokenizer

    def weights(self) -> Iterator[tuple[str, Floats]]:
        """(transformers' name, float32 array in transformers' order of rows), tensor by tensor."""
        heads = self._value("llama.attention.head_count")
        heads_of = {"attn_q": heads, "attn_k": self._value("llama.attention.head_count_kv", heads)}
        for tensor in self._reader.tensors:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            part = tensor.name.split(".")[-2]
            if part in heads_of:
                values = _halves_of_heads(values, heads_of[part])
            yield _name(tensor.name), values

    def weight_bytes(self) -> int:
        """Bytes of `model.safetensors`, its header aside."""
        return sum(
            tensor.n_elements + 4 * int(tensor.shape[1]) if len(tensor.shape) == 2 else 4 * tensor.n_elements
            for tensor in self._reader.tensors
        )


def _name(name: str) -> str:
    if name in _OUTSIDE_THE_LAYERS:
        return _OUTSIDE_THE_LAYERS[name]
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in _OF_A_LAYER:
            return f"model.layers.{layer}.{_OF_A_LAYER[part]}.weight"
    raise GgufError(f"the GGUF file has a tensor that no Llama has: {name}")


def _shortest(number: float) -> float:
    """1e-05 rather than 9.999999747378752e-06: the decimal that was meant before it became a float32."""
    return float(str(np.float32(number)))


def _halves_of_heads(rows: Floats, heads: int) -> Floats:
    """Undo llama.cpp's interleaving: it stores RoPE's pair (i, i + head_dim/2) as rows 2i and 2i + 1."""
    out, width = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def int8_by_row(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """(int8 [out, in], scale float32 [out]): each row's largest magnitude becomes 127."""
    scale = np.abs(weight).max(axis=1) / np.float32(127)
    steps = np.rint(weight / np.where(scale == 0, np.float32(1), scale)[:, None])
    return steps.astype(np.int8), scale


def convert(source: Path, folder: Path, advance: Callable[[int, int], None]) -> Tokenizer:
    """Write the three files into `folder`, which exists; `advance(bytes done, bytes in all)`.

    Gives the tokenizer as read back from its file. Raises GgufError, OSError.
    """
    model = LlamaGguf(source)
    (folder / "config.json").write_bytes(msgspec.json.format(msgspec.json.encode(model.config())))
    model.tokenizer().save(str(folder / "tokenizer.json"))
    total = model.weight_bytes()
    done = 0
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, values in model.weights():
        if values.ndim == 2:
            tensors[name], tensors[f"{name}_scale"] = int8_by_row(values)
            done += tensors[f"{name}_scale"].nbytes
        else:
            tensors[name] = values
        done += tensors[name].nbytes
        advance(done, total)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
