"""Workspace folders as paths."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit


def path_of(uri: str) -> str | None:
    """The path of a file: URI of this machine; None for every other, and for names that are not UTF-8."""
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path:
        return None
    return path.rstrip("/") or "/"
