"""A Qwen2 checkpoint widened to larger dimensions so that it computes the same function.

The small model lives in the first `hidden` entries of the wide residual stream; all others stay exactly
zero. Weights that read such a dead entry may hold anything, so they hold random numbers of the size of their
row's own: a widened model is not a file of zeros. Rows that write to a dead entry read nothing alive.

What has to be made up for:

- RMSNorm takes its mean over more entries: weights times sqrt(d/D), epsilon times d/D.
- Attention divides by the square root of the head's size: queries times sqrt(S/s).
- RoPE's frequencies depend on the head's size: a pair of the small head goes where the wide one turns as
  fast. That is an exact place when S is a multiple of s.
- A query head belongs to the key head of its group: groups are kept.
- Added layers write zero to the stream.
- Added ids hold copies of one row, of an id the model never predicts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import save_file

from copilotd.models.checkpoint import Checkpoint
from copilotd.models.configuration import Configuration, read_configuration
from faithful.shapes import Dimensions

Progress = Callable[[str, float], None]
"""what is being written, and the share that is done"""
SHARD_BYTES = 4_000_000_000
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class DoesNotFit(ValueError):
    """The small model cannot live in these dimensions."""


def dimensions(configuration: Configuration) -> Dimensions:
    heads = configuration.num_attention_heads
    return Dimensions(
        hidden=configuration.hidden_size,
        layers=configuration.num_hidden_layers,
        heads=heads,
        key_heads=configuration.num_key_value_heads or heads,
        head_size=configuration.head_dim or configuration.hidden_size // heads,
        intermediate=configuration.intermediate_size,
        vocabulary=configuration.vocab_size,
        tied=configuration.tie_word_embeddings,
    )


def check(small: Dimensions, wide: Dimensions) -> None:
    """Raises DoesNotFit."""
    for name in ("hidden", "layers", "key_heads", "intermediate", "vocabulary"):
        if getattr(small, name) > getattr(wide, name):
            raise DoesNotFit(f"{name} is {getattr(small, name)}, more than {getattr(wide, name)}")
    if wide.head_size % small.head_size:
        raise DoesNotFit(f"head_size is {small.head_size}, which does not divide {wide.head_size}")
    if small.heads // small.key_heads > wide.heads // wide.key_heads:
        raise DoesNotFit(
            f"{small.heads // small.key_heads} query heads share a key head, more than in the wide one"
        )
    if wide.tied and not small.tied:
        raise DoesNotFit("its head is not its embedding, the wide one's is")


def widen(
    source: Path, into: Path, wide: Dimensions, never: int, dtype: torch.dtype, progress: Progress
) -> None:
    """Write the model of `source`, widened, into the folder `into`; `never` is an id it never predicts.

    Raises DoesNotFit, ModelError for a source that cannot be read, OSError.
    """
    configuration = read_configuration(source)
    small = dimensions(configuration)
    check(small, wide)
    into.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, into / name)
    described = json.loads((source / "config.json").read_bytes())
    (into / "config.json").write_text(
        json.dumps(widened_configuration(described, small, wide, dtype), indent=2) + "\n", encoding="utf-8"
    )
    shards = _Shards(into)
    for done, (name, tensor) in enumerate(Widening(source, small, wide, never, dtype).tensors()):
        progress(name, done / (12 * wide.layers + 3))
        shards.add(name, tensor)
    shards.close()


def widened_configuration(
    described: dict[str, object], small: Dimensions, wide: Dimensions, dtype: torch.dtype
) -> dict[str, object]:
    changed = {
        "hidden_size": wide.hidden,
        "num_hidden_layers": wide.layers,
        "num_attention_heads": wide.heads,
        "num_key_value_heads": wide.key_heads,
        "head_dim": wide.head_size,
        "intermediate_size": wide.intermediate,
        "vocab_size": wide.vocabulary,
        "tie_word_embeddings": wide.tied,
        "rms_norm_eps": float(str(described.get("rms_norm_eps", 1e-6))) * small.hidden / wide.hidden,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    dropped = ("quantization_config", "layer_types", "max_window_layers")
    return {key: value for key, value in described.items() if key not in dropped} | changed


class Widening:
    """The wide model's tensors, one after the other, so that few are in memory."""

    def __init__(
        self, source: Path, small: Dimensions, wide: Dimensions, never: int, dtype: torch.dtype
    ) -> None:
        self._checkpoint = Checkpoint(source)
        self._small = small
        self._wide = wide
        self._never = never
        self._dtype = dtype
        self._random = torch.Generator().manual_seed(0)
        self._norm = sqrt(small.hidden / wide.hidden)
        self._residual = torch.arange(small.hidden)
        self._ffn = torch.arange(small.intermediate)
        self._turned = head_entries(small, wide)
        plain = torch.arange(small.head_size)
        shared, wide_shared = small.heads // small.key_heads, wide.heads // wide.key_heads
        query_heads = torch.tensor([h // shared * wide_shared + h % shared for h in range(small.heads)])
        key_heads = torch.arange(small.key_heads)
        self._queries = (query_heads[:, None] * wide.head_size + self._turned).flatten()
        self._keys = (key_heads[:, None] * wide.head_size + self._turned).flatten()
        self._values = (key_heads[:, None] * wide.head_size + plain).flatten()
        self._mixed = (query_heads[:, None] * wide.head_size + plain).flatten()
        # A query head without a weight mixes its group's values too, all alike.
        self._attended = torch.arange(small.key_heads * wide_shared * wide.head_size)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        small, wide = self._small, self._wide
        words = self._read("model.embed_tokens", small.vocabulary, small.hidden)
        table = torch.zeros(wide.vocabulary, wide.hidden, dtype=self._dtype)
        table[:, : small.hidden] = self._with_padding(words).to(self._dtype)
        yield "model.embed_tokens.weight", table
        for layer in range(wide.layers):
            yield from self._layer(f"model.layers.{layer}", alive=layer < small.layers)
        yield "model.norm.weight", self._norm_weight("model.norm.weight")
        if not wide.tied:
            head = words if small.tied else self._read("lm_head", small.vocabulary, small.hidden)
            yield (
                "lm_head.weight",
                self._matrix(self._with_padding(head), torch.arange(wide.vocabulary), self._residual,
                             wide.vocabulary, wide.hidden),
            )  # fmt: skip

    def _layer(self, prefix: str, *, alive: bool) -> Iterator[tuple[str, torch.Tensor]]:
        small, wide = self._small, self._wide
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        queries, keys = small.heads * small.head_size, small.key_heads * small.head_size
        wide_queries, wide_keys = wide.heads * wide.head_size, wide.key_heads * wide.head_size
        gain = sqrt(wide.head_size / small.head_size)
        for part, rows, places, wide_rows, factor in (
            ("q", queries, self._queries, wide_queries, gain),
            ("k", keys, self._keys, wide_keys, 1.0),
            ("v", keys, self._values, wide_keys, 1.0),
        ):
            name = f"{attention}.{part}_proj"
            weight = self._read(name, rows, small.hidden) * factor if alive else None
            yield f"{name}.weight", self._matrix(weight, places, self._residual, wide_rows, wide.hidden)
            bias = torch.zeros(wide_rows)
            if alive and f"{name}.bias" in self._checkpoint:
                bias[places] = self._checkpoint.read(f"{name}.bias", rows).float() * factor
            yield f"{name}.bias", bias.to(self._dtype)
        name = f"{attention}.o_proj"
        weight = self._read(name, small.hidden, queries) if alive else None
        if weight is not None:
            spread = torch.zeros(small.hidden, len(self._attended))
            spread[:, self._mixed] = weight
            weight = spread
        yield (
            f"{name}.weight",
            self._matrix(weight, self._residual, self._attended, wide.hidden, wide_queries),
        )
        for part in ("gate", "up"):
            name = f"{mlp}.{part}_proj"
            weight = self._read(name, small.intermediate, small.hidden) if alive else None
            yield (
                f"{name}.weight",
                self._matrix(weight, self._ffn, self._residual, wide.intermediate, wide.hidden),
            )
        name = f"{mlp}.down_proj"
        weight = self._read(name, small.hidden, small.intermediate) if alive else None
        yield (
            f"{name}.weight",
            self._matrix(weight, self._residual, self._ffn, wide.hidden, wide.intermediate),
        )
        for norm in ("input_layernorm", "post_attention_layernorm"):
            name = f"{prefix}.{norm}.weight"
            yield name, self._norm_weight(name) if alive else torch.ones(wide.hidden, dtype=self._dtype)

    def _read(self, name: str, rows: int, columns: int) -> torch.Tensor:
        return self._checkpoint.weight(name, rows, columns).floating()

    def _with_padding(self, words: torch.Tensor) -> torch.Tensor:
        added = self._wide.vocabulary - self._small.vocabulary
        return torch.cat((words, words[self._never].expand(added, -1)))

    def _norm_weight(self, name: str) -> torch.Tensor:
        weight = torch.ones(self._wide.hidden)
        weight[: self._small.hidden] = self._checkpoint.read(name, self._small.hidden).float() * self._norm
        return weight.to(self._dtype)

    def _matrix(
        self, weight: torch.Tensor | None, rows: torch.Tensor, columns: torch.Tensor, height: int, width: int
    ) -> torch.Tensor:
        """[height, width] with `weight` at `rows` x `columns`; the other rows read nothing from `columns`, and
        what stands in the other columns is multiplied by zero, so it is random. Without a weight `columns`
        are the living ones still."""
        size = torch.full((height, 1), DEAD)
        if weight is not None:
            size[rows, 0] = weight.abs().mean(dim=1)
        wide = torch.empty(height, width, dtype=self._dtype)
        wide.uniform_(-1.0, 1.0, generator=self._random).mul_(size.to(self._dtype))
        wide[:, columns] = 0.0
        if weight is not None:
            wide[rows[:, None], columns] = weight.to(self._dtype)
        return wide


DEAD = 0.03
"""most that stands in a row which writes nothing alive"""


def head_entries(small: Dimensions, wide: Dimensions) -> torch.Tensor:
    """Where each entry of a small head's query or key goes: entries j and j + s/2 are a pair that turns by
    theta^(-2j/s) (halves paired), which in the wide head is pair j S/s."""
    half = torch.arange(small.head_size // 2) * (wide.head_size // small.head_size)
    return torch.cat((half, half + wide.head_size // 2))


class _Shards:
    """Safetensors files of some gigabytes, and their index, as the hub lays them out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, torch.Tensor] = {}
        self._files: list[tuple[Path, list[str]]] = []
        self._bytes = 0

    def add(self, name: str, tensor: torch.Tensor) -> None:
        if self._held and sum(t.nbytes for t in self._held.values()) + tensor.nbytes > SHARD_BYTES:
            self._write()
        self._held[name] = tensor.contiguous()

    def close(self) -> None:
        self._write()
        for stale in self._folder.glob("model*.safetensors*"):
            stale.unlink()
        count = len(self._files)
        index = {}
        for at, (written, names) in enumerate(self._files, 1):
            final = "model.safetensors" if count == 1 else f"model-{at:05}-of-{count:05}.safetensors"
            written.rename(self._folder / final)
            index |= dict.fromkeys(names, final)
        if count > 1:
            described = {"metadata": {"total_size": self._bytes}, "weight_map": index}
            (self._folder / "model.safetensors.index.json").write_text(
                json.dumps(described), encoding="utf-8"
            )

    def _write(self) -> None:
        path = self._folder / f"part-{len(self._files)}"
        save_file(self._held, path, metadata={"format": "pt"})
        self._bytes += sum(tensor.nbytes for tensor in self._held.values())
        self._files.append((path, list(self._held)))
        self._held = {}
