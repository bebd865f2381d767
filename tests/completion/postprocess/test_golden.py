"""The golden cases, and the proof that each rule is needed for at least one of them."""

from __future__ import annotations

import pytest

from copilotd.completion import postprocess
from tests.golden.cases import FOLDER, Case, read

CASES = list(read())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_text_after_accepting(case: Case) -> None:
    assert case.accepted() == case.after


@pytest.mark.parametrize("rule", postprocess.RULES)
def test_every_rule_is_needed(rule: str) -> None:
    """With the rule switched off a case fails: the corpus would notice if it broke."""
    assert any(case.accepted(off=frozenset({rule})) != case.after for case in CASES)


def test_the_corpus_is_large_and_wide() -> None:
    assert len({(case.document, case.after) for case in CASES}) >= 200
    languages = {case.options["language"] for case in CASES}
    assert languages >= {
        "python", "typescript", "typescriptreact", "java", "sql", "go", "rust", "c", "yaml", "markdown", "vue", "html"
    }  # fmt: skip


def test_every_handed_case_of_this_kind_is_in_it() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    assert all(f"CB-H0{number}" in text for number in range(3, 9))
