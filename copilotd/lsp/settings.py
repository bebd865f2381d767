"""Session settings as editors send them, read key by key: one bad value costs that key and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import FieldInfo, fields

from copilotd.config import DaemonSettings, Loaded, SessionSettings

SECTION = "copilotd"

_SESSION: dict[str, FieldInfo] = {field.name: field for field in fields(SessionSettings)}
_DAEMON = frozenset(field.name for field in fields(DaemonSettings))


class Reading(NamedTuple):
    settings: SessionSettings
    trusted: bool
    """False where the editor's person does not trust the folder"""
    problems: list[str]
    """what was not taken and why, for the person"""


def read(layers: Sequence[object], own: Loaded) -> Reading:
    """The settings of `layers`, later ones over earlier ones, over the user's own.

    A layer is the value of the editor's section "copilotd"; anything but an object is no layer at all.
    Keys of the daemon and keys a system file has locked are not taken from an editor.
    """
    values: dict[str, Any] = {}
    trusted = True
    problems: list[str] = []
    for layer in layers:
        if not isinstance(layer, dict):
            continue
        for key, value in layer.items():
            if key in _DAEMON or key == "daemon":
                problems.append(f"`{SECTION}.{key}` is the daemon's and not taken from an editor")
            elif f"session.{key}" in own.locked:
                problems.append(f"`{SECTION}.{key}` is locked on this system")
            elif key == "trusted":
                trusted = value is not False
            elif key in _SESSION:
                values.pop(key, None)
                try:
                    if value is not None:
                        values[key] = msgspec.convert(value, _SESSION[key].type)
                except msgspec.ValidationError as error:
                    problems.append(f"`{SECTION}.{key}`: {error}; the default holds")
    return Reading(msgspec.structs.replace(own.settings.session, **values), trusted, problems)


def section(settings: object) -> object:
    """The value of "copilotd" in an object of settings; None where there is none."""
    return settings.get(SECTION) if isinstance(settings, dict) else None
