"""Which version replaces which."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from copilotd import __version__
from copilotd.version import development_version, newer, version


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.2.0", "0.1.9"),
        ("0.10.0", "0.9.0"),
        ("1.0", "0.9.9"),
        ("0.1.0+dev.1700000001.00000000", "0.1.0+dev.1700000000.ffffffff"),
        ("0.1.0+dev.1700000000.ffffffff", "0.1.0"),
        ("0.2.0", "0.1.0+dev.1700000000.ffffffff"),
        ("0.1.0", "rubbish"),
    ],
)
def test_the_newer_replaces_the_older_and_never_the_other_way(one: str, other: str) -> None:
    assert newer(one, other)
    assert not newer(other, one)


def test_no_two_replace_each_other_in_turns() -> None:
    words = ["0.1.0", "0.1", "0.1.0+dev.5.aa", "0.1.0+dev.5.bb", "rubbish", "", "9999", __version__]
    assert not any(newer(a, b) and newer(b, a) for a, b in product(words, words))


def test_a_checkout_is_known_by_its_sources(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1")
    os.utime(source, (1000, 1000))
    first = development_version(tmp_path)
    assert first == development_version(tmp_path)
    source.write_text("x = 2")
    os.utime(source, (2000, 2000))
    assert newer(development_version(tmp_path), first)


def test_our_own_version_is_an_order() -> None:
    assert version().startswith(__version__)
    assert newer("9999", version())
