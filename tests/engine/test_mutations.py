"""The tests tested: each classic mistake of speculative decoding makes a check fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import pytest

from copilotd.engine import acceptance, forward, kv, speculate
from copilotd.engine.drafters import draft_model
from copilotd.engine.native import runner as native
from tests.support import engine_checks as checks
from tests.support.kernels import holds_here
from tests.support.mutation import mutated

MUTATIONS: dict[str, tuple[ModuleType, str, str, Callable[[], None]]] = {
    "the draft cache is not refilled": (
        draft_model,
        "pending = sequence[len(cache.ids) :]",
        "pending = sequence[-1:]",
        checks.check_draft_keeps_up,
    ),
    "the crop keeps one rejected row": (
        speculate,
        "cache.truncate(len(sequence) + min(verdict.accepted, len(fresh)))",
        "cache.truncate(len(sequence) + min(verdict.accepted, len(fresh)) + 1)",
        checks.check_toy_identity,
    ),
    "the cache cuts one row too few": (
        kv,
        "del self.ids[length:]",
        "del self.ids[length + 1 :]",
        checks.check_real_identity,
    ),
    "a step is placed one row too far": (
        forward,
        "start = start_of_step(self, cache, count, rows)",
        "start = start_of_step(self, cache, count, rows) + (count > 1)",
        checks.check_real_identity,
    ),
    "the compiled kernels' cache cuts one row too few": (
        native,
        "del self.ids[length:]",
        "del self.ids[length + 1 :]",
        partial(checks.check_real_identity, "compiled-int8"),
    ),
    "the compiled kernels place a step one row too far": (
        native,
        "start = start_of_step(self, cache, count, rows)",
        "start = start_of_step(self, cache, count, rows) + (count > 1)",
        partial(checks.check_real_identity, "compiled-int8"),
    ),
    "rows after a stop id stay": (
        speculate,
        "min(verdict.accepted, len(fresh))",
        "verdict.accepted",
        checks.check_stop,
    ),
    "p and q are swapped in the ratio": (
        acceptance,
        "target / draft)",
        "draft / max(target, 1e-9))",
        checks.check_sampled_law,
    ),
    "p and q are swapped in the residual": (
        acceptance,
        "(p - q)",
        "(q - p)",
        checks.check_sampled_law,
    ),
    "a rejection draws from p itself": (
        acceptance,
        "return left if left.sum() > 0.0 else p",
        "return p",
        checks.check_sampled_law,
    ),
    "the mask binds the target only": (
        draft_model,
        "masked(row, [walk.mask()])[0]",
        "row[0]",
        checks.check_healed_law,
    ),
    "the mask binds the draft only": (
        speculate,
        "rows = masked(target.step(cache, pending + proposal.ids, rows=len(masks)), masks)",
        "rows = target.step(cache, pending + proposal.ids, rows=len(masks))",
        checks.check_healed_law,
    ),
    "a drawn id is dropped for its low probability": (
        draft_model,
        "            drawn.ended = token in ends\n",
        "            drawn.ended = token in ends\n"
        "            if probability < 0.3:\n"
        "                drawn.ids.pop(), drawn.q.pop(), drawn.probabilities.pop()\n"
        "                break\n",
        checks.check_sampled_law,
    ),
    "the extra id comes from the row before": (
        acceptance,
        "distribution(rows[-1], sampling)",
        "distribution(rows[-2 if len(rows) > 1 else -1], sampling)",
        checks.check_sampled_law,
    ),
    "the draft draws from a generator of its own": (
        draft_model,
        "self._randomness = randomness",
        "self._randomness = type(randomness)(request.sampling.seed)",
        checks.check_seeded_law,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutant_is_caught(name: str) -> None:
    module, old, new, check = MUTATIONS[name]
    if module is native:
        holds_here("compiled-int8")
    check()
    with mutated(module, old, new), pytest.raises((AssertionError, ValueError)):
        check()
