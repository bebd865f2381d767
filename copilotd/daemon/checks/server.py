"""The server of `backend = "openai"`, by the settings alone: nothing is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from copilotd.backends.base import BackendError
from copilotd.backends.openai.endpoint import read_endpoint
from copilotd.config import DaemonSettings
from copilotd.daemon.checks.finding import Finding, failed, ok


def check_server(settings: DaemonSettings) -> Iterator[Finding]:
    try:
        endpoint = read_endpoint(settings)
    except BackendError as error:
        yield failed(
            "server", str(error), "Mend that under [daemon] in the settings, then run `copilotd reload`"
        )
        return
    way = "on this machine" if endpoint.loopback else "encrypted"
    if not endpoint.loopback and endpoint.url.startswith("http:"):
        way = "unencrypted, as allow_plaintext says"
    key = "with a key" if endpoint.headers() else "without a key"
    model = settings.endpoint_model or "the first that it names"
    yield ok("server", f"{endpoint.url}, {way}, {key}; model: {model}; fallback: {settings.fallback}")
