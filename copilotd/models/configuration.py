"""A model's config.json: the keys copilotd needs, checked, with errors that name file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from copilotd.engine.forward import Shape
from copilotd.models.catalogue import Sizes
from copilotd.models.errors import ModelError

OWN_FORWARD = ("qwen2", "llama")
"""model types that `engine.forward` computes; others go through transformers"""

INT8_ROWS = "copilotd-int8-row"
"""quant_method of checkpoints that hold `X.weight` in int8 beside `X.weight_scale`"""


MOST_LAYERS = 10_000
LEAST_TOKENS = 256


class Configuration(Struct, frozen=True):
    """config.json. What is absent takes the architecture's usual value, where it has one."""

    model_type: str
    vocab_size: int
    hidden_size: int = 0
    intermediate_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    """what transformers 5 writes instead of the two above"""
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = None
    max_window_layers: int | None = None
    layer_types: list[str] | None = None
    mlp_bias: bool = False
    quantization_config: dict[str, Any] | None = None

    @property
    def own_forward(self) -> bool:
        return self.model_type in OWN_FORWARD

    @property
    def layer_parameters(self) -> int:
        """Near enough: the matrices of the layers."""
        width = self.hidden_size
        return self.num_hidden_layers * width * (3 * self.intermediate_size + 2 * width)

    @property
    def int8_rows(self) -> bool:
        return self.quantization_config is not None


def read_configuration(folder: Path) -> Configuration:
    """Raises ModelError when config.json is missing, incomplete or asks for what copilotd cannot do."""
    path = folder / "config.json"
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise ModelError(f"{path} is no file: fetch the model again (copilotd pull)")
        configuration = msgspec.json.decode(path.read_bytes(), type=Configuration)
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: fetch the model again (copilotd pull)") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({type(error).__name__})") from None
    except msgspec.DecodeError as error:
        raise ModelError(f"{path} is no usable configuration ({error}): fetch the model again") from None
    method = (configuration.quantization_config or {}).get("quant_method", INT8_ROWS)
    if method != INT8_ROWS:
        raise ModelError(
            f"{path}: quantization_config asks for {method!r}, which copilotd does not read: use the unquantised model; "
            "copilotd quantises it itself"
        )
    return configuration


def decoder_shape(configuration: Configuration, path: Path) -> Shape:
    """The numbers of a model of our own forward's kind; `path` names config.json in errors."""

    def refuse(key: str, value: object, remedy: str) -> ModelError:
        return ModelError(f"{path}: {key} is {value!r}: {remedy}")

    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        if getattr(configuration, key) < 1:
            raise refuse(key, getattr(configuration, key), "the file is incomplete, fetch the model again")
    if configuration.num_hidden_layers > MOST_LAYERS:
        raise refuse("num_hidden_layers", configuration.num_hidden_layers, "no model has so many")
    if configuration.max_position_embeddings < LEAST_TOKENS:
        raise refuse(
            "max_position_embeddings", configuration.max_position_embeddings, "no prompt fits into it"
        )
    if configuration.rms_norm_eps < 0:
        raise refuse(
            "rms_norm_eps", configuration.rms_norm_eps, "it cannot be negative, fetch the model again"
        )
    heads = configuration.num_attention_heads
    key_heads = configuration.num_key_value_heads or heads
    if heads % key_heads:
        raise refuse("num_key_value_heads", key_heads, f"it must divide the {heads} attention heads")
    if configuration.hidden_act != "silu":
        raise refuse("hidden_act", configuration.hidden_act, "only silu is known")
    if configuration.mlp_bias:
        raise refuse("mlp_bias", True, "only products without it are known")
    return Shape(
        hidden=configuration.hidden_size,
        intermediate=configuration.intermediate_size,
        heads=heads,
        key_heads=key_heads,
        head_size=configuration.head_dim or configuration.hidden_size // heads,
        rope_theta=_rope_theta(configuration, path),
        norm_epsilon=configuration.rms_norm_eps,
        max_tokens=configuration.max_position_embeddings,
        windows=_windows(configuration),
    )


def sizes_of(configuration: Configuration) -> Sizes:
    """What decides a model's weight; of a configuration that `decoder_shape` takes."""
    heads = configuration.num_attention_heads
    return Sizes(
        hidden=configuration.hidden_size,
        intermediate=configuration.intermediate_size,
        layers=configuration.num_hidden_layers,
        heads=heads,
        key_heads=configuration.num_key_value_heads or heads,
        head_size=configuration.head_dim or configuration.hidden_size // max(1, heads),
        rows=configuration.vocab_size,
        tied=configuration.tie_word_embeddings,
    )


def _rope_theta(configuration: Configuration, path: Path) -> float:
    parameters = configuration.rope_parameters or {}
    scaling = configuration.rope_scaling or parameters
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ModelError(
            f"{path}: rope scaling {kind!r} is not known to copilotd: choose a model without it, "
            "or set rope_scaling to null and stay within the length it was trained on"
        )
    theta = (
        configuration.rope_theta
        if configuration.rope_theta is not None
        else parameters.get("rope_theta", 1e4)
    )
    if not isinstance(theta, int | float) or theta <= 0:
        raise ModelError(f"{path}: rope_theta is {theta!r}: it must be above 0, fetch the model again")
    return float(theta)


def _windows(configuration: Configuration) -> tuple[int | None, ...]:
    """Qwen2's rule: with use_sliding_window, the layers from max_window_layers on see a window."""
    layers = configuration.num_hidden_layers
    window = configuration.sliding_window if configuration.use_sliding_window else None
    if window is None or configuration.model_type != "qwen2":
        return (None,) * layers
    if configuration.layer_types is not None and len(configuration.layer_types) == layers:
        return tuple(window if kind == "sliding_attention" else None for kind in configuration.layer_types)
    first = configuration.max_window_layers if configuration.max_window_layers is not None else 28
    return tuple(window if layer >= first else None for layer in range(layers))
