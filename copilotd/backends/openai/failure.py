"""What can go wrong with a server, in words that name the remedy and hold nothing of the request."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx2

LONGEST_WAIT_S = 600.0
"""A Retry-After beyond this is not believed."""


class Failure(Exception):
    """One request that came to nothing. The words continue "The completion server … "."""

    def __init__(
        self, words: str, *, lasting: bool = False, wait_s: float = 0.0, refused: bool = False
    ) -> None:
        """`lasting`: it will not go away by itself; `wait_s`: the server wants to be left alone for so long;
        `refused`: the request's form is at fault, another one may do."""
        super().__init__(words)
        self.lasting = lasting
        self.wait_s = wait_s
        self.refused = refused


def of_status(status: int, headers: Mapping[str, str], now: float | None = None) -> Failure:
    """For an answer that is no 200. The body is not looked at: it may hold the prompt."""
    wait_s = retry_after(headers.get("retry-after", ""), time.time() if now is None else now)
    match status:
        case 401 | 403:
            return Failure(
                f"refuses the key ({status}): put the right one into COPILOTD_API_KEY or the file named by "
                "api_key_file, then run `copilotd reload`",
                lasting=True,
            )
        case 404:
            return Failure(
                "knows no such model or address (404): check endpoint, which usually ends in /v1, and "
                "endpoint_model, then run `copilotd reload`",
                lasting=True,
            )
        case 429:
            return Failure("has too much to do (429)", wait_s=wait_s)
        case _ if 300 <= status < 400:
            return Failure(
                f"sends us elsewhere ({status}): write its final address into endpoint, "
                "then run `copilotd reload`",
                lasting=True,
            )
        case 400 | 413 | 422:
            return Failure(
                f"does not take the request ({status}): check endpoint_model and context_tokens, "
                "then run `copilotd reload`",
                lasting=True,
                refused=True,
            )
    return Failure(f"fails (status {status})", wait_s=wait_s)


def of_transport(error: Exception) -> Failure:
    """For a connection that could not be made or broke off."""
    if isinstance(_root(error), ssl.SSLError):
        return Failure(
            "cannot be trusted: its certificate does not check. Name the authority's file in ca_file, "
            "then run `copilotd reload`",
            lasting=True,
        )
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Failure("cannot be reached")
    if isinstance(error, httpx2.ProxyError):
        return Failure("cannot be reached through the proxy that the environment names")
    if isinstance(error, httpx2.TimeoutException):
        return Failure("does not answer")
    return Failure("broke off the connection")


def of_content(kind: str) -> Failure:
    """For an answer that is no completion; `kind` is the content type's first half, ours or a known one."""
    known = (
        kind if kind in ("text/html", "text/plain", "application/json", "text/event-stream") else "another"
    )
    return Failure(f"answers with something else than a completion ({known}): check endpoint")


def retry_after(value: str, now: float) -> float:
    """Seconds from a Retry-After header: a number or a date; 0 for none, or nonsense."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT_S) if seconds == seconds else 0.0


def _root(error: BaseException) -> BaseException:
    while (below := error.__cause__ or error.__context__) is not None and not isinstance(error, ssl.SSLError):
        error = below
    return error
