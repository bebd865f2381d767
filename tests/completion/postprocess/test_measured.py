"""The rules on real files, as `scripts/measure_text --model truth` measures them: what is right stays whole."""

from __future__ import annotations

import random
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from copilotd.completion import postprocess

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    loader = SourceFileLoader("measure_text", str(ROOT / "scripts" / "measure_text"))
    spec = spec_from_loader("measure_text", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["measure_text"] = module
    loader.exec_module(module)
    return module


def test_a_model_that_writes_the_truth_and_never_ends_is_shown_the_truth(measure: ModuleType) -> None:
    wanted = {"line": 60, "block": 60}
    folders = [ROOT / "tests" / "sources"]
    holes = [hole for seed in range(12) for hole in measure.cut(folders, dict(wanted), random.Random(seed))]
    heard = list(measure.read_on(holes))
    with_rules = measure.judge(heard, measure.results(heard, measure.NONE))
    without = measure.judge(heard, measure.results(heard, frozenset(postprocess.RULES) - measure.ALWAYS))
    assert with_rules.right == with_rules.wanted
    assert with_rules.exact >= 0.95 * with_rules.holes > without.exact
    assert not with_rules.faults
    assert without.faults or without.wrong > with_rules.wrong
