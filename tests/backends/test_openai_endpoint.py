"""Where the server may be, and how the key and the authorities are read."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from copilotd.backends.base import BackendError
from copilotd.backends.openai.endpoint import is_loopback, read_endpoint, read_key
from copilotd.config import DaemonSettings

SECRET = "sk-very-secret"


def settings(endpoint: str, **others: object) -> DaemonSettings:
    return DaemonSettings(backend="openai", endpoint=endpoint, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("endpoint", "named"),
    [
        ("", "no endpoint is set"),
        ("models.example.com/v1", "https://"),
        ("ftp://models.example.com/v1", "https://"),
        ("https:///v1", "host"),
        ("http://models.example.com/v1", "allow_plaintext"),
        ("http://192.168.1.7:8000/v1", "allow_plaintext"),
        ("http://localhost.example.com/v1", "allow_plaintext"),
        ("http://127.0.0.1.example.com/v1", "allow_plaintext"),
        (f"https://user:{SECRET}@models.example.com/v1", "api_key_file"),
        (f"https://models.example.com/v1?key={SECRET}", "path"),
        ("https://models.example.com:port/v1", "no address"),
        ("https://models.example.com:99999/v1", "port"),
    ],
)
def test_what_is_refused_says_why_and_what_to_do(endpoint: str, named: str) -> None:
    with pytest.raises(BackendError) as refused:
        read_endpoint(settings(endpoint), {})
    assert named in str(refused.value)
    assert "copilotd reload" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "endpoint",
    ["http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:8000/v1", "http://127.9.9.9/v1"],
)
def test_this_machine_is_reached_without_tls_and_never_through_a_proxy(endpoint: str) -> None:
    assert not read_endpoint(settings(endpoint), {}).trusts_environment


def test_others_are_reached_by_https_or_by_permission() -> None:
    assert (
        read_endpoint(settings("https://models.example.com/v1/"), {}).url == "https://models.example.com/v1"
    )
    allowed = read_endpoint(settings("http://models.example.com:81/v1", allow_plaintext=True), {})
    assert allowed.server == "models.example.com:81"
    assert allowed.trusts_environment


@pytest.mark.parametrize("host", ["localhost.", "LOCALHOST", "::1", "127.0.0.2"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


def test_the_key_is_read_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    assert read_key(str(file), {}) == SECRET
    assert read_key(str(file), {"COPILOTD_API_KEY": "other"}) == "other"
    assert read_key("", {}) == ""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(mode)
    with pytest.raises(BackendError, match="chmod 600") as refused:
        read_key(str(file), {})
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("content", [f"{SECRET}\nsecond line", f"{SECRET} and more", "ключ", ""])
def test_what_is_no_key_is_not_sent_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    file.chmod(0o600)
    if not content:
        assert read_key(str(file), {}) == ""
        return
    with pytest.raises(BackendError, match="holds no key") as refused:
        read_key(str(file), {})
    assert SECRET not in str(refused.value)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="FileNotFoundError"):
        read_key(str(tmp_path / "nowhere"), {})
    with pytest.raises(BackendError, match="api_key_file ~no-such-person/key cannot be read"):
        read_key("~no-such-person/key", {})


def test_nothing_that_shows_an_endpoint_shows_its_key() -> None:
    endpoint = read_endpoint(settings("https://models.example.com/v1"), {"COPILOTD_API_KEY": SECRET})
    assert endpoint.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(endpoint) + str(endpoint)


def test_authorities_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ca_file"):
        read_endpoint(settings("https://models.example.com/v1", ca_file=str(tmp_path / "none.pem")), {})
    (tmp_path / "empty.pem").write_text("no certificate")
    with pytest.raises(BackendError, match="ca_file"):
        read_endpoint(settings("https://models.example.com/v1", ca_file=str(tmp_path / "empty.pem")), {})
    bundle = ssl.get_default_verify_paths().cafile
    if bundle and os.path.exists(bundle):  # noqa: PTH110
        read_endpoint(settings("https://models.example.com/v1", ca_file=bundle), {})
