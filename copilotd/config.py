"""Every setting of copilotd, one tree of msgspec Structs, and where its values come from.

*Daemon* keys come only from the system's and the user's TOML and from the daemon's environment
(`COPILOTD_MODEL` for `daemon.model`), never from an editor or a repository. *Session* keys may also come
from the editor, per folder. A system file may lock keys of both kinds:

    lock = ["daemon.model", "session.enabled"]
    [daemon]
    model = "qwen2.5-coder-7b"
"""

from __future__ import annotations

import ast
import inspect
import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import platformdirs
from msgspec import Meta, Struct

T = TypeVar("T")
Unit = Annotated[float, Meta(ge=0.0, le=1.0)]


class DaemonSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys that decide what one daemon loads and where it lives."""

    backend: Literal["local", "openai"] = "local"
    """Who writes: models on this machine, or a server that speaks OpenAI's /v1/completions, such as vLLM."""
    endpoint: str = ""
    """The server's address, usually ending in /v1."""
    endpoint_model: str = ""
    """The model's name at the server; empty takes the first that it names."""
    endpoint_tokenizer: str = ""
    """A folder with the tokenizer.json of the server's model: prompts then go as token ids."""
    api_key_file: str = ""
    """A file with the server's key that only you may read; COPILOTD_API_KEY comes first."""
    ca_file: str = ""
    """PEM file of the authorities that the server's certificate is checked against; empty: the system's."""
    allow_plaintext: bool = False
    """Whether code may go unencrypted, by http://, to a server beyond this machine."""
    fallback: Literal["none", "embedded"] = "none"
    """What writes while the server is away: nothing, or the small models that come with copilotd."""
    model: str = "auto"
    """Target: `auto`, a name from the catalogue, a hub id, or a local folder."""
    draft: str = "auto"
    """Draft model: `auto`, `none`, a name from the catalogue, a hub id, or a local folder."""
    quantisation: Literal["auto", "nf4", "int8", "bf16", "fp32"] = "auto"
    """How weights are kept in memory; `auto` takes what is fast here and keeps the quality."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`: a GPU where torch finds one."""
    kernels: Literal["auto", "torch"] = "auto"
    """On a CPU: `auto` compiles copilotd's own for this processor, where a C compiler is there; else torch's."""
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    """Of a step; 0 decides by measurement."""
    speculation: Literal["auto", "on", "off"] = "auto"
    """`auto` asks a drafter while its measured gain exceeds its cost; `on` always drafts."""
    max_draft_tokens: Annotated[int, Meta(ge=1, le=64)] = 8
    """Tokens that are drafted and checked in one step, at most."""
    context_tokens: Annotated[int, Meta(ge=64)] = 2048
    """Prompt tokens and new tokens together, at most; the model's own limit also holds."""
    cold_tokens: Annotated[int, Meta(ge=0)] = 0
    """How long a prompt may be that has to be prefilled while somebody waits, before a short one goes first;
    0 decides by the measured speed. A fixed number makes two runs ask the same."""
    prefetch: Literal["auto", "on", "off"] = "auto"
    """Write what comes after the text shown before that is taken; `auto` spares a shared server this work."""
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.0
    """0 writes the target's best token every time."""
    top_k: Annotated[int, Meta(ge=0)] = 0
    """0 keeps every token."""
    top_p: Unit = 1.0
    """1 keeps every token."""
    seed: int = 0
    """Of the draws, where the temperature is above 0."""
    index: bool = True
    """Read the workspace's files, to copy from them; ignored and secret ones never."""
    secrets_allowed: tuple[str, ...] = ()
    """Files, as in a .gitignore, that hold no secret although their name or content says so."""
    idle_unload_s: Annotated[int, Meta(ge=0)] = 1800
    """Free the models after so many seconds without a request; 0 never."""
    idle_exit_s: Annotated[int, Meta(ge=0)] = 7200
    """Leave after so many seconds without a client; 0 never."""
    offline: bool = False
    """`copilotd pull` makes no request either; everything else never makes one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Of the daemon's log, which never holds text of yours."""


class SessionSettings(Struct, frozen=True, kw_only=True):
    """Keys an editor may set for one session or one folder."""

    enabled: bool = True
    """Whether there are completions at all."""
    languages_off: tuple[str, ...] = ()
    """Language ids that get no completion."""
    globs_off: tuple[str, ...] = ()
    """Paths, as in a .gitignore, that get no completion."""
    multiline: Literal["auto", "never", "always"] = "auto"
    """`auto`: several lines where a block begins, as many as the model is sure of; `always`: sure or not."""
    comments: Literal["off", "line", "on"] = "on"
    """Completions in comments: none, to the end of the line, or as in code."""
    max_new_tokens: Annotated[int, Meta(ge=1, le=1024)] = 128
    """Tokens of a completion, at most."""
    max_latency_ms: Annotated[int, Meta(ge=0)] = 2000
    """What is decoded by then is answered; 0 waits for the whole."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    daemon: DaemonSettings = msgspec.field(default_factory=DaemonSettings)
    session: SessionSettings = msgspec.field(default_factory=SessionSettings)


KEYS = frozenset(
    f"{section}.{name}"
    for section, kind in (("daemon", DaemonSettings), ("session", SessionSettings))
    for name in kind.__struct_fields__
)
"""every setting, `daemon.model`"""


def meanings(kind: type[Struct]) -> dict[str, str]:
    """The words below each field."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(ast.literal_eval(below.value).split())
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
    }


class SettingsError(Exception):
    """A settings file or variable cannot be used. The message names it, the key and the reason."""


class Loaded(Struct, frozen=True):
    """The settings in force and where each came from."""

    settings: Settings = msgspec.field(default_factory=Settings)
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    """`daemon.model` → a file's path or `environment COPILOTD_MODEL`; keys left out have their default"""
    locked: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    """values that cannot be used and names that are no setting; the default is in force in their place"""

    def session(self, editor: Mapping[str, object]) -> SessionSettings:
        """The session's settings with an editor's values over the user's, but for locked keys.

        Keys that are not session keys are passed over. Raises SettingsError for a value of the wrong type.
        """
        names = set(SessionSettings.__struct_fields__)
        values = {
            key: value
            for key, value in editor.items()
            if key in names and f"session.{key}" not in self.locked
        }
        return _convert(
            {**msgspec.to_builtins(self.settings.session), **values}, SessionSettings, "the editor"
        )

    def enforce(self, session: SessionSettings) -> SessionSettings:
        """What an editor asked for, with the system's values for the keys it locked."""
        locked = {
            name: getattr(self.settings.session, name)
            for name in SessionSettings.__struct_fields__
            if f"session.{name}" in self.locked
        }
        return msgspec.structs.replace(session, **locked) if locked else session


def system_file() -> Path:
    return platformdirs.site_config_path("copilotd") / "config.toml"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    home = environ.get("COPILOTD_HOME")
    return (Path(home) if home else platformdirs.user_config_path("copilotd")) / "config.toml"


def load(
    system: Path | None = None, user: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Loaded:
    """Read the system's file, the user's and the environment; later ones win except over locked keys.

    A value that cannot be used costs its own key only. Raises SettingsError for a file that cannot be read and
    for a lock that locks nothing. Missing files are no error.
    """
    system, user = system or system_file(), user or user_file(environ)
    tree: dict[str, dict[str, object]] = {"daemon": {}, "session": {}}
    sources: dict[str, str] = {}
    problems: list[str] = []
    system_tree = _read(system)
    locked = frozenset(_convert(system_tree.pop("lock", []), list[str], str(system)))
    if unknown := locked - KEYS:
        raise SettingsError(f"{system}: lock names no setting: {', '.join(sorted(unknown))}")
    for layer, source in ((system_tree, str(system)), (_read(user), str(user))):
        for section, name, value in _usable(layer, source, problems):
            if source == str(system) or f"{section}.{name}" not in locked:
                tree[section][name] = value
                sources[f"{section}.{name}"] = source
    for name in DaemonSettings.__struct_fields__:
        variable = f"COPILOTD_{name.upper()}"
        if variable in environ and f"daemon.{name}" not in locked:
            text = environ[variable]
            if problem := _problem({name: text}, DaemonSettings, f"environment variable {variable}"):
                problems.append(problem)
            else:
                tree["daemon"][name] = text
                sources[f"daemon.{name}"] = f"environment {variable}"
    return Loaded(_convert(tree, Settings, "settings"), sources, locked, tuple(problems))


def _usable(
    layer: Mapping[str, object], source: str, problems: list[str]
) -> Iterator[tuple[str, str, object]]:
    """Section, name and value of what is a setting and can be used; what cannot goes to `problems`."""
    for section, values in layer.items():
        if section not in Settings.__struct_fields__:
            problems.append(_unknown(section, source))
        elif not isinstance(values, dict):
            problems.append(f"{source}: {section} is no table: write [{section}]")
        else:
            for name, value in values.items():
                if f"{section}.{name}" not in KEYS:
                    problems.append(_unknown(f"{section}.{name}", source))
                elif problem := _problem({section: {name: value}}, Settings, source):
                    problems.append(problem)
                else:
                    yield section, name, value


def _unknown(name: str, source: str) -> str:
    """Says so of a name that is no setting, with the one that was probably meant."""
    section, _, own = name.rpartition(".")
    meant = {} if section else {section: f"[{section}]" for section in Settings.__struct_fields__}
    meant |= {key.partition(".")[2]: key for key in KEYS}
    likely = get_close_matches(own, meant, 1)
    advice = f"; do you mean {meant[likely[0]]}?" if likely else ""
    return f"{source}: no such setting: {name}{advice}"


def _problem(value: object, kind: type[Struct], source: str) -> str:
    """What is wrong with it; "" if nothing is."""
    try:
        _convert(value, kind, source)
    except SettingsError as error:
        return str(error)
    return ""


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from None


def _convert(value: object, kind: type[T], source: str) -> T:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{source}: {error}{_choices(str(error))}") from None


def _choices(error: str) -> str:
    """The words that a key takes, where it was given another one."""
    name = error.rpartition(".")[2].rstrip("`")
    for kind in (DaemonSettings, SessionSettings):
        hint = get_type_hints(kind).get(name)
        if get_origin(hint) is Literal:
            return f" (one of {', '.join(get_args(hint))})"
    return ""
