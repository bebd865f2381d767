"""Target and draft from their folders into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import torch
from msgspec import Struct, field
from msgspec.structs import replace

from copilotd.config import DaemonSettings
from copilotd.engine.forward import Decoder, DecoderRunner, Embedding, Layer
from copilotd.engine.native.runner import NativeRunner, computes
from copilotd.engine.products import Product
from copilotd.engine.runner import Runner
from copilotd.engine.self_test import Identity, gives_numbers, self_test
from copilotd.engine.transformers_runner import TransformersRunner
from copilotd.models import memory, store
from copilotd.models.checkpoint import Checkpoint, Weight
from copilotd.models.choice import NF4_PARAMETERS, PAYS, Choice, choose, draft_gain, row_share
from copilotd.models.configuration import Configuration, decoder_shape, read_configuration, sizes_of
from copilotd.models.errors import ModelError, OutOfMemory
from copilotd.models.kept import Kept
from copilotd.models.machine import free_bytes, look
from copilotd.models.memory import Quantisation
from copilotd.models.offer import Offer, offers
from copilotd.models.pairing import difference
from copilotd.models.quantise import (
    Packed,
    Processor,
    fastest,
    keepable,
    layer_product,
    pack,
    product,
    why_not_compiled,
)
from copilotd.models.store import Place
from copilotd.models.tokenizer import TokenizerVocabulary

Progress: TypeAlias = Callable[[str, float, float], None]
"""What is being loaded, megabytes done, megabytes in all. It may raise to end the load."""


class Pair(Struct, kw_only=True):
    """What one daemon holds in memory."""

    target: Runner
    draft: Runner | None
    vocabulary: TokenizerVocabulary
    tokenizer: Path
    """the folder with the target's tokenizer.json"""
    target_name: str
    draft_name: str | None
    quantisation: Quantisation
    device: str
    kernels: str = ""
    """of a CPU: "compiled" or "torch"; "compiled + torch" where each has its part; "" elsewhere"""
    why_torch: str = ""
    """what keeps a CPU from the compiled ones"""
    memory_bytes: int
    """of the weights"""
    bytes_per_token: int
    """of weights that a plain step of the target reads"""
    identity: Identity
    smaller: str = ""
    """the next smaller target on this machine"""
    offers: tuple[Offer, ...] = ()
    """what could be fetched, where `auto` found nothing better than the embedded pair"""
    warnings: list[str] = field(default_factory=list)
    """for the person, each said once"""


class Model(Struct, kw_only=True):
    runner: NativeRunner | DecoderRunner | TransformersRunner
    vocabulary: TokenizerVocabulary
    name: str
    quantisation: Quantisation
    kernels: str
    why_torch: str
    memory_bytes: int
    bytes_per_token: int


def load_pair(settings: DaemonSettings, progress: Progress) -> Pair:
    """Target and draft as the settings say. Raises ModelError; a draft that fails is only a warning.

    Where memory does not suffice, the next smaller target of this machine takes its place, and a warning
    says so.
    """
    try:
        return _load_chosen(settings, progress)
    except OutOfMemory as error:
        if not error.smaller:
            raise
        said, smaller = str(error), error.smaller
    pair = load_pair(replace(settings, model=smaller, draft="auto"), progress)
    pair.warnings.insert(0, f"{said}. copilotd goes on with {smaller} in its place")
    return pair


def _load_chosen(settings: DaemonSettings, progress: Progress) -> Pair:
    device = _device(settings)
    machine = look(settings, measure=settings.model == "auto" and store.has_hub_models())
    chosen = choose(replace(settings, device=device.type), machine)
    place = chosen.target
    target = load_model(place, settings, device, progress, draft=False)
    _require_numbers(target, place)
    draft, warnings = _paired(target, chosen, settings, device, progress)
    if draft is not None:
        size = min(target.runner.vocabulary, draft.runner.vocabulary)
        target.runner.vocabulary = draft.runner.vocabulary = size
    models = (target,) if draft is None else (target, draft)
    return Pair(
        target=target.runner,
        draft=draft.runner if draft else None,
        vocabulary=target.vocabulary,
        tokenizer=place.folder,
        target_name=target.name,
        draft_name=draft.name if draft else None,
        quantisation=target.quantisation,
        device=str(device),
        kernels=_listed(" + ", (model.kernels for model in models)),
        why_torch=_listed("; ", (model.why_torch for model in models)),
        memory_bytes=sum(model.memory_bytes for model in models),
        bytes_per_token=target.bytes_per_token,
        identity=self_test(target.runner),
        smaller=store.smaller(place.entry),
        offers=offers(settings, machine) if settings.model == "auto" and place.name == "embedded" else (),
        warnings=warnings,
    )


def load_model(
    place: Place, settings: DaemonSettings, device: torch.device, progress: Progress, *, draft: bool
) -> Model:
    """One model from its folder. Raises ModelError."""
    configuration = read_configuration(place.folder)
    vocabulary = TokenizerVocabulary.from_folder(place.folder)
    rows = max(_LEAST_FIXED_ROWS, settings.max_draft_tokens + 1)
    entries = min(vocabulary.size, configuration.vocab_size)
    checkpoint = Checkpoint(place.folder)
    try:
        if not configuration.own_forward:
            foreign = TransformersRunner(place.folder, entries, fixed_rows=rows, device=str(device))
            on_cpu = device.type == "cpu"
            return Model(
                runner=foreign,
                vocabulary=vocabulary,
                name=place.name,
                quantisation="fp32" if on_cpu else "bf16",
                kernels="torch" if on_cpu else "",
                why_torch="transformers runs this architecture" if on_cpu else "",
                memory_bytes=foreign.nbytes,
                bytes_per_token=foreign.nbytes,
            )
        processor = _processor(settings, device)
        quantisation = _quantisation(settings, configuration, processor, draft=draft)
        _require_memory(place, configuration, quantisation, device, draft=draft)
        kept = Kept.open(
            checkpoint.states, configuration, quantisation, str(processor), "draft" if draft else "target"
        )
        try:
            reader = _Reader(checkpoint, configuration, place, quantisation, processor, kept)
            decoder = reader.decoder(progress, draft=draft)
            kept.finish()
        finally:
            kept.drop()
    except (MemoryError, torch.OutOfMemoryError):
        raise _out_of_memory(place, device) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # how torch says it on the CPU
            raise
        raise _out_of_memory(place, device) from None
    products = sum(product.nbytes for product in decoder.products)
    kernels, why_torch = _kernels(processor, decoder, quantisation)
    return Model(
        runner=NativeRunner(decoder, entries)
        if computes(decoder)
        else DecoderRunner(decoder, entries, fixed_rows=rows, device=str(device)),
        vocabulary=vocabulary,
        name=place.name,
        quantisation=quantisation,
        kernels=kernels,
        why_torch=why_torch,
        memory_bytes=products + decoder.embedding.table.nbytes,
        bytes_per_token=products,
    )


_LEAST_FIXED_ROWS = 8
"""where steps have one fixed number of rows, prompts go through in chunks of so many too"""


# ---- which models ------------------------------------------------------------------------------------------


def _device(settings: DaemonSettings) -> torch.device:
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ModelError('device is "cuda" but torch sees no GPU: set device to "auto" or "cpu"')
    cuda = settings.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if cuda else "cpu")


def _processor(settings: DaemonSettings, device: torch.device) -> Processor:
    if device.type != "cpu":
        return Processor(device)
    why_torch = 'kernels = "torch" in the settings' if settings.kernels == "torch" else why_not_compiled()
    return Processor(device, not why_torch, why_torch)


def _kernels(processor: Processor, decoder: Decoder, quantisation: Quantisation) -> tuple[str, str]:
    """As a Pair says them: which, and why not the compiled ones alone."""
    if processor.device.type != "cpu":
        return "", ""
    if not keepable(quantisation):
        return "torch", f"none are compiled for {quantisation}"
    if not processor.compiled:
        return "torch", processor.why_torch
    if not computes(decoder):
        return "compiled + torch", "a size of the model is no multiple of 16"
    return "compiled", ""


def _listed(mark: str, words: Iterable[str]) -> str:
    """Each once."""
    return mark.join(dict.fromkeys(word for word in words if word))


def _paired(
    target: Model, chosen: Choice, settings: DaemonSettings, device: torch.device, progress: Progress
) -> tuple[Model | None, list[str]]:
    """The draft, if there is one that fits, and what the person should know."""
    if chosen.draft is None:
        return None, [chosen.draft_problem] if chosen.draft_problem else []
    try:
        draft = load_model(chosen.draft, settings, device, progress, draft=True)
        _require_numbers(draft, chosen.draft)
    except ModelError as error:
        return None, [f"There is no draft model: {error}"]
    apart = difference(target.vocabulary, draft.vocabulary)
    if apart is not None:
        return None, [
            f"The draft {draft.name} is left out: {apart} than in {target.name}. Choose a draft of the same family"
        ]
    share = draft.bytes_per_token / target.bytes_per_token
    if settings.draft != "auto" and draft_gain(share, row_share(device.type)) < PAYS:
        return draft, [
            f"The draft {draft.name} reads {share:.0%} of what {target.name} reads for a token: it can hardly "
            'save time. Choose a smaller draft, or set draft to "none"'
        ]
    return draft, []


def _require_numbers(model: Model, place: Place) -> None:
    if not gives_numbers(model.runner):
        raise ModelError(
            f"{place.folder}: the model gives no numbers (NaN): its weights or its config.json are damaged, "
            "fetch the model again"
        )


def _quantisation(
    settings: DaemonSettings, configuration: Configuration, processor: Processor, *, draft: bool
) -> Quantisation:
    if settings.quantisation != "auto":
        return settings.quantisation
    if configuration.int8_rows:  # rounding once more could only lose
        return "int8"
    if not draft and configuration.layer_parameters < NF4_PARAMETERS:
        return "int8"
    return fastest(configuration.hidden_size, 2 * configuration.intermediate_size, processor)


def _require_memory(
    place: Place,
    configuration: Configuration,
    quantisation: Quantisation,
    device: torch.device,
    *,
    draft: bool,
) -> None:
    """Raises OutOfMemory where the weights alone are more than is free: on a CPU the kernel would rather end
    the process than say so."""
    sizes = sizes_of(configuration)
    kind: memory.Device = "cuda" if device.type == "cuda" else "cpu"
    footprint = memory.footprint(
        sizes, quantisation, kind, draft=draft, context_tokens=1, int8_files=configuration.int8_rows
    )
    free = free_bytes(kind)
    if footprint.weights + footprint.transient > free:
        raise _out_of_memory(place, device, f" ({footprint.weights / 1e9:.1f} GB, {free / 1e9:.1f} are free)")


def _out_of_memory(place: Place, device: torch.device, figures: str = "") -> OutOfMemory:
    return OutOfMemory(
        f"{place.name} does not fit into the memory of this machine's {device.type}{figures}: "
        "choose a smaller model, or quantisation nf4 or int8, or close other programs; then `copilotd reload`",
        smaller=store.smaller(place.entry),
    )


# ---- weights -----------------------------------------------------------------------------------------------


class _Reader:
    """Builds a Decoder tensor by tensor, so that never more than one is held unquantised."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        configuration: Configuration,
        place: Place,
        quantisation: Quantisation,
        processor: Processor,
        kept: Kept,
    ) -> None:
        self._kept = kept
        self._checkpoint = checkpoint
        self._configuration = configuration
        self._shape = decoder_shape(configuration, place.folder / "config.json")
        self._place = place
        self._quantisation = quantisation
        self._processor = processor
        self._device = processor.device

    def decoder(self, progress: Progress, *, draft: bool) -> Decoder:
        shape = self._shape
        megabytes = self._checkpoint.nbytes / 1e6
        layers = []
        for index in range(shape.layers):
            progress(self._place.name, megabytes * index / (shape.layers + 1), megabytes)
            layers.append(self._layer(f"model.layers.{index}"))
        progress(self._place.name, megabytes * shape.layers / (shape.layers + 1), megabytes)
        decoder = Decoder(
            shape=shape,
            embedding=self._embedding(),
            layers=tuple(layers),
            norm=self._vector("model.norm.weight", shape.hidden),
            head=self._head(draft=draft),
        )
        progress(self._place.name, megabytes, megabytes)
        return decoder

    def _layer(self, prefix: str) -> Layer:
        shape = self._shape
        queries, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
        attention = f"{prefix}.self_attn"
        if f"{attention}.o_proj.bias" in self._checkpoint or f"{attention}.q_norm.weight" in self._checkpoint:
            raise ModelError(
                f"{self._place.folder}: its attention has parts copilotd's forward does not compute: "
                "choose a Qwen2 or Llama model"
            )
        bias = None
        if f"{attention}.q_proj.bias" in self._checkpoint:
            sizes = {"q": queries, "k": keys, "v": keys}
            bias = torch.cat(
                [self._vector(f"{attention}.{part}_proj.bias", size) for part, size in sizes.items()]
            )
        fused = {
            "qkv": (
                {f"{attention}.q_proj": queries, f"{attention}.k_proj": keys, f"{attention}.v_proj": keys},
                shape.hidden,
            ),
            "output": ({f"{attention}.o_proj": shape.hidden}, queries),
            "gate_up": (
                {f"{prefix}.mlp.gate_proj": shape.intermediate, f"{prefix}.mlp.up_proj": shape.intermediate},
                shape.hidden,
            ),
            "down": ({f"{prefix}.mlp.down_proj": shape.hidden}, shape.intermediate),
        }
        products = self._products(prefix, fused)
        return Layer(
            attention_norm=self._vector(f"{prefix}.input_layernorm.weight", shape.hidden),
            qkv=products["qkv"],
            qkv_bias=bias,
            output=products["output"],
            mlp_norm=self._vector(f"{prefix}.post_attention_layernorm.weight", shape.hidden),
            gate_up=products["gate_up"],
            down=products["down"],
        )

    def _products(self, prefix: str, fused: dict[str, tuple[dict[str, int], int]]) -> dict[str, Product]:
        """By name, each one product for the matrices named, one below the other: ({name: outputs}, inputs)."""
        if not keepable(self._quantisation):
            return {
                name: layer_product(self._fused(*parts), self._quantisation, self._processor)
                for name, parts in fused.items()
            }

        def made() -> dict[str, Packed]:
            return {
                name: pack(self._fused(*parts), self._quantisation, self._processor)
                for name, parts in fused.items()
            }

        shapes = {name: (sum(outputs.values()), inputs) for name, (outputs, inputs) in fused.items()}
        return {
            name: product(packed, self._processor, residual=False)
            for name, packed in self._kept.products(prefix, shapes, made).items()
        }

    def _fused(self, outputs: dict[str, int], inputs: int) -> Weight:
        weights = [self._checkpoint.weight(name, rows, inputs) for name, rows in outputs.items()]
        scales = [weight.scale for weight in weights if weight.scale is not None]
        if len(scales) not in (0, len(weights)):
            raise ModelError(
                f"{self._place.folder}: int8 and other weights are mixed in {', '.join(outputs)}"
            )
        return Weight(torch.cat([weight.values for weight in weights]), torch.cat(scales) if scales else None)

    def _head(self, *, draft: bool) -> Product:
        """A target's head is never below int8 by row with (nearly) exact activations; a draft's head is free."""
        quantisation: Quantisation = self._quantisation
        if quantisation == "nf4" and not draft:
            quantisation = "int8"
        tied = self._configuration.tie_word_embeddings or "lm_head.weight" not in self._checkpoint
        rows = self._configuration.vocab_size

        def weight() -> Weight:
            return self._checkpoint.weight(
                "model.embed_tokens" if tied else "lm_head", rows, self._shape.hidden
            )

        if not keepable(quantisation):
            return layer_product(weight(), quantisation, self._processor)
        packed = self._kept.products(
            "head",
            {"head": (rows, self._shape.hidden)},
            lambda: {"head": pack(weight(), quantisation, self._processor)},
        )
        return product(packed["head"], self._processor, residual=not draft)

    def _vector(self, name: str, size: int) -> torch.Tensor:
        # copied: a view would keep the whole file mapped
        return self._checkpoint.read(name, size).to(self._device, torch.float32, copy=True)

    def _embedding(self) -> Embedding:
        words = self._checkpoint.weight(
            "model.embed_tokens", self._configuration.vocab_size, self._shape.hidden
        )
        if words.scale is not None:
            return Embedding(
                words.values.to(self._device, copy=True), words.scale.to(self._device, copy=True)
            )
        kind = torch.float32 if self._quantisation == "fp32" else torch.bfloat16
        return Embedding(words.values.to(self._device, kind, copy=True))
