"""Every setting of copilotd, one tree of msgspec Structs.

*Daemon* keys come only from the system's and the user's TOML and from the daemon's environment, never from
an editor or a repository. *Session* keys may also come from the editor, per folder.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

Unit = Annotated[float, Meta(ge=0.0, le=1.0)]


class DaemonSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys that decide what one daemon loads and where it lives."""

    model: str = "auto"
    """Target: `auto`, a name from the catalogue, a hub id, or a local folder."""
    draft: str = "auto"
    """Draft model: `auto`, `none`, a name from the catalogue, a hub id, or a local folder."""
    quantisation: Literal["auto", "nf4", "int8", "bf16", "fp32"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Meta(ge=0)] = 0
    """torch threads; 0 decides by measurement."""
    speculation: Literal["auto", "on", "off"] = "auto"
    """`auto` asks a drafter while its measured gain exceeds its cost; `on` always drafts."""
    max_draft_tokens: Annotated[int, Meta(ge=1, le=64)] = 8
    context_tokens: Annotated[int, Meta(ge=64)] = 2048
    """Prompt tokens and new tokens together, at most; the model's own limit also holds."""
    temperature: Annotated[float, Meta(ge=0.0)] = 0.0
    """0 writes the target's best token every time."""
    top_k: Annotated[int, Meta(ge=0)] = 0
    """0 keeps every token."""
    top_p: Unit = 1.0
    seed: int = 0
    idle_unload_s: Annotated[int, Meta(ge=0)] = 1800
    """Free the models after so many seconds without a request; 0 never."""
    idle_exit_s: Annotated[int, Meta(ge=0)] = 7200
    """Leave after so many seconds without a client; 0 never."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class SessionSettings(Struct, frozen=True, kw_only=True):
    """Keys an editor may set for one session or one folder."""

    enabled: bool = True
    languages_off: tuple[str, ...] = ()
    """Language ids that get no completion."""
    globs_off: tuple[str, ...] = ()
    """Paths, as in a .gitignore, that get no completion."""
    multiline: Literal["auto", "never", "always"] = "auto"
    comments: Literal["off", "line", "on"] = "on"
    max_new_tokens: Annotated[int, Meta(ge=1, le=1024)] = 128
    max_latency_ms: Annotated[int, Meta(ge=0)] = 2000
    """What is decoded by then is answered; 0 waits for the whole."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    daemon: DaemonSettings = msgspec.field(default_factory=DaemonSettings)
    session: SessionSettings = msgspec.field(default_factory=SessionSettings)
