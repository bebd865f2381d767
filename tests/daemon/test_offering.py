"""The offer of better models: made once, with sizes and sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from copilotd.config import DaemonSettings
from copilotd.daemon.offering import KEEP, Once, message
from copilotd.models import store
from copilotd.models.choice import PAYS, candidates
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
    assert (
        "Qwen2.5-Coder-1.5B and its draft Qwen2.5-Coder-0.5B: 4.1 GB from the Hugging Face hub, Apache-2.0"
        in asked.text
    )
    assert asked.choices[1].title == "Fetch Qwen2.5-Coder-1.5B (4.1 GB)"
    assert [choice.pull for choice in asked.choices] == ["starter", "Qwen2.5-Coder-1.5B", ""]
    assert asked.choices[-1] == KEEP
    assert message(()).choices == ()


def test_a_draft_is_offered_unless_it_is_there_or_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = "Qwen2.5-Coder-1.5B: 3.1 GB from the Hugging Face hub, Apache-2.0"
    assert offers(DaemonSettings(draft="none"), machine(20e9))[-1].words == alone
    assert offers(DaemonSettings(speculation="off"), machine(20e9))[-1].words == alone
    there = {"Qwen2.5-Coder-0.5B": Path("/models/draft")}
    monkeypatch.setattr(store, "on_disk", lambda entry: there.get(entry.name))
    assert offers(DaemonSettings(), machine(20e9))[-1].words == alone


def test_drafts_pay_with_every_target_that_has_one() -> None:
    """So what is fetched does not depend on the machine."""
    for device in ("cpu", "cuda"):
        here = structs.replace(machine(500e9), device=device)
        found = [one for one in candidates(DaemonSettings(), here) if one.entry.hub and one.entry.draft]
        assert found
        assert all(one.gain >= PAYS for one in found)
