"""Where the server is and how it may be spoken to: address, key, trust, proxies. Checked once, at load."""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path

import httpx2
from msgspec import Struct

from copilotd.backends.base import BackendError
from copilotd.config import DaemonSettings

KEY_VARIABLE = "COPILOTD_API_KEY"


class Endpoint(Struct, frozen=True):
    """`repr` is without the key: nothing that shows one shows that."""

    url: str
    """as far as /v1, without a slash at the end"""
    server: str
    """for people: host and port"""
    loopback: bool
    verify: ssl.SSLContext | bool
    _key: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    @property
    def trusts_environment(self) -> bool:
        """Whether the proxies that the environment names are used: never to this very machine."""
        return not self.loopback


def read_endpoint(settings: DaemonSettings, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Raises BackendError, which names the key and the remedy."""
    if not settings.endpoint:
        raise BackendError(
            'backend is "openai" but no endpoint is set: write its address, such as '
            'endpoint = "https://models.example.com/v1", under [daemon] in your config.toml, '
            "then run `copilotd reload`"
        )
    try:
        url = httpx2.URL(settings.endpoint)
    except httpx2.InvalidURL:
        raise _refused("is no address") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise _refused("must begin with https:// or http:// and name a host")
    if url.port is not None and not 0 < url.port < 65536:
        raise _refused("names a port that cannot be")
    if url.userinfo:
        raise _refused(f"must not hold a key or password: use {KEY_VARIABLE} or api_key_file")
    if url.query or url.fragment:
        raise _refused("must end with a path, usually /v1")
    loopback = is_loopback(url.host)
    if url.scheme == "http" and not loopback and not settings.allow_plaintext:
        raise _refused(
            "would send your code unencrypted through the network: use https://, or set "
            "allow_plaintext = true where the way there is protected otherwise"
        )
    port = f":{url.port}" if url.port else ""
    return Endpoint(
        url=str(url).rstrip("/"),
        server=f"{url.host}{port}",
        loopback=loopback,
        verify=_trust(settings.ca_file),
        _key=read_key(settings.api_key_file, environ),
    )


def is_loopback(host: str) -> bool:
    """By its name alone: what a name server says of others may change."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.rstrip(".").casefold() == "localhost"


def read_key(file: str, environ: Mapping[str, str] = os.environ) -> str:
    """From the environment, or else from a file that only its owner may read. Raises BackendError."""
    if key := environ.get(KEY_VARIABLE, "").strip():
        return _usable(key, KEY_VARIABLE)
    if not file:
        return ""
    path = home_path(file)
    try:
        with path.open(encoding="utf-8") as opened:
            status = os.fstat(opened.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise BackendError(
                    f"api_key_file {path} may be read by others: run `chmod 600 {path}` as its owner, "
                    "then `copilotd reload`"
                )
            key = opened.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BackendError(
            f"api_key_file {path} cannot be read ({type(error).__name__}): mend it, then run `copilotd reload`"
        ) from None
    return _usable(key, str(path))


def _usable(key: str, place: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BackendError(
            f"{place} holds no key: it must be one line of visible characters; then run `copilotd reload`"
        )
    return key


def home_path(text: str) -> Path:
    """With "~" at its beginning written out; nobody's home stays as it is and will not be found."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    path = home_path(ca_file)
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError):
        raise BackendError(
            f"ca_file {path} holds no certificates that can be read: name a PEM file, then run `copilotd reload`"
        ) from None


def _refused(why: str) -> BackendError:
    return BackendError(f"endpoint {why}. Mend it in your config.toml, then run `copilotd reload`")
