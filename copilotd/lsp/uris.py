"""URIs of files, whose percent-encoding every editor spells in its own way."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

from copilotd.lsp.text import without_lone_surrogates


def path_of(uri: str) -> str | None:
    """The path of a file: URI of this machine; None for every other, and for names that are not UTF-8.

    A "?" or "#" that an editor left as it is belongs to the name: a file has neither query nor fragment.
    """
    try:
        parts = urlsplit(uri.replace("?", "%3F").replace("#", "%23"))
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path:
        return None
    return path.rstrip("/") or "/"


def same_spelling(uri: str) -> str:
    """One URI for all that name the same file; any other URI as it is, but for lone surrogates."""
    uri = without_lone_surrogates(uri)
    path = path_of(uri)
    return uri if path is None else "file://" + quote(path)
