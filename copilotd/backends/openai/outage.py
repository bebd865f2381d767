"""While a server does not work: when to ask it again, and what a person is told of it, once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from copilotd.backends.base import BackendError, Unavailable
from copilotd.backends.openai.failure import Failure

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 30.0
PATIENCE_S = 3.0
"""What is over by then is nobody's concern."""
PATIENCE = 3
"""Nor are fewer failures than these in a row."""


class Outage:
    """Asked before and told after each request. One outage has one message, whatever else goes wrong in it."""

    def __init__(
        self,
        server: str,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """`server` is how messages call it. `spread` keeps a team's daemons from coming back all at once."""
        self._server, self._clock, self._spread = server, clock, spread
        self._failures = 0
        self._since = self._until = 0.0
        self._said = ""

    @property
    def going_on(self) -> bool:
        return self._failures > 0

    def check(self) -> None:
        """Raises BackendError while the server is to be left alone."""
        if self._failures and self._clock() < self._until:
            raise self._error(self._said)

    def over(self) -> None:
        self._failures = 0
        self._said = ""

    def failed(self, failure: Failure) -> BackendError:
        """What to raise."""
        now = self._clock()
        self._since = self._since if self._failures else now
        self._failures += 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** (self._failures - 1), LONGEST_WAIT_S)
        if failure.lasting:
            wait_s = LONGEST_WAIT_S
        self._until = now + self._spread(1.0, 1.25) * max(wait_s, failure.wait_s)
        long = self._failures >= PATIENCE and now - self._since >= PATIENCE_S
        if not self._said and (failure.lasting or long or failure.wait_s > LONGEST_WAIT_S):
            self._said = f"copilotd's server {self._server} {failure}"
        return self._error(self._said)

    def _error(self, said: str) -> BackendError:
        return BackendError(said) if said else Unavailable("the server failed a moment ago")
