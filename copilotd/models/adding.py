"""Models whose files somebody brought by hand: checked, and linked to where names are looked up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from copilotd.models import store, workplace
from copilotd.models.catalogue import CATALOGUE, named
from copilotd.models.checkpoint import Checkpoint
from copilotd.models.configuration import Configuration, decoder_shape, read_configuration, sizes_of
from copilotd.models.errors import ModelError
from copilotd.models.tokenizer import TokenizerVocabulary
from copilotd.models.vocabulary import FimTokens

_CHAT_END = 151_645
"""<|im_end|>: what Qwen's chat models end with; base models end with 151643"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Added(Struct, frozen=True):
    name: str
    folder: Path
    """where the files are"""
    remarks: tuple[str, ...]
    """what a person should know of them"""


def add(path: Path, name: str = "") -> Added:
    """Check a folder of weights and link it under its name: the catalogue's where it is one of its models,
    else `name`, else the folder's. Raises ModelError, OSError, and PullError while a pull runs."""
    try:
        folder = path.expanduser().resolve()
    except RuntimeError:
        raise ModelError(f"{path}: links that lead back to themselves, or nobody's home") from None
    configuration, fim = _check(folder)
    name = name or _name(folder, configuration)
    entry = named(name)
    if not _NAME.fullmatch(name) or (entry is not None and not entry.hub):
        raise ModelError(f"{name!r} cannot be the name of a model: choose another with --name")
    if entry is not None:
        name = entry.name
        if sizes_of(configuration) != entry.sizes:
            raise ModelError(
                f"{folder / 'config.json'}: its shape is not that of {name}: choose another --name"
            )
    link = store.models_folder() / name
    with workplace.alone(link.parent):
        if link.exists() and not link.is_symlink():
            raise ModelError(
                f"{name} is there already: {link}. Remove that folder first, or choose another --name"
            )
        part = link.with_name(f".adding-{name}")
        part.unlink(missing_ok=True)
        part.symlink_to(folder)
        part.replace(link)
    remarks = []
    if entry is None:
        remarks.append(f'It is not in the catalogue: set model = "{name}" to use it')
    elif not entry.permissive:
        remarks.append(f"Its licence ({entry.licence}) does not allow all work: `auto` passes it over")
    if not configuration.own_forward:
        remarks.append(
            f"{configuration.model_type} runs by the transformers library: slower, and not quantised"
        )
    if fim is None:
        remarks.append("It cannot fill in the middle: what stands after the cursor is not seen")
    return Added(name, folder, tuple(remarks))


def _check(folder: Path) -> tuple[Configuration, FimTokens | None]:
    """Raises ModelError for what cannot be used, with the reason."""
    if folder.suffix == ".gguf" or (folder.is_dir() and not _tensors(folder) and any(folder.glob("*.gguf"))):
        raise ModelError(
            f"{folder}: copilotd does not read GGUF: bring the safetensors files of the same model (its repository "
            "on the hub has them)"
        )
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder: name the one with config.json and model.safetensors")
    if not (folder / "config.json").exists():
        raise ModelError(
            f"{folder} holds no config.json: name the folder with the model's config.json, tokenizer.json and "
            "safetensors files"
        )
    configuration = read_configuration(folder)
    checkpoint = Checkpoint(folder)
    vocabulary = TokenizerVocabulary.from_folder(folder)
    if configuration.own_forward:
        decoder_shape(configuration, folder / "config.json")
        last = f"model.layers.{configuration.num_hidden_layers - 1}.mlp.down_proj.weight"
        for wanted in ("model.embed_tokens.weight", last):
            if wanted not in checkpoint:
                raise ModelError(f"{folder}: the weights hold no {wanted}: files are missing, bring them all")
    if _is_chat(folder):
        raise ModelError(
            f"{folder}: these are Instruct weights, made for chat; they fill in code poorly. Bring the base model "
            "(the same name without -Instruct)"
        )
    return configuration, vocabulary.fim


def _tensors(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _is_chat(folder: Path) -> bool:
    ends = _json(folder / "config.json").get("eos_token_id")
    return re.search("instruct|chat", folder.name, re.IGNORECASE) is not None or ends == _CHAT_END


def _name(folder: Path, configuration: Configuration) -> str:
    """The catalogue's name of a model of this shape, unless the folder says that it is another one."""
    called = folder.name
    parents = [part for part in folder.parts if part.startswith("models--")]
    if parents:  # the hub's cache: its last folder is a commit
        called = parents[-1].rpartition("--")[2]
    if not ("qwen" in called.casefold() and "coder" not in called.casefold()):
        for entry in CATALOGUE:
            if entry.hub and configuration.model_type == "qwen2" and sizes_of(configuration) == entry.sizes:
                return entry.name
    return called


def _json(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
