"""Which pair a machine gets, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from copilotd.config import DaemonSettings
from copilotd.models import choice, speeds, store
from copilotd.models.catalogue import CATALOGUE, Entry, named
from copilotd.models.choice import candidates, choose, draft_gain
from copilotd.models.errors import ModelError
from copilotd.models.machine import Machine
from copilotd.models.speeds import Measured

GB = 1_000_000_000
ALL = {entry.name for entry in CATALOGUE}


def gpu(gigabytes: float) -> Machine:
    free = int(gigabytes * GB)
    return Machine(device="cuda", name="GPU", free_bytes=free, total_bytes=free, bandwidth=1e12, nf4=True)


def laptop(**keys: Any) -> Machine:
    return Machine(
        **{"device": "cpu", "name": "cpu", "free_bytes": 12 * GB, "total_bytes": 16 * GB, "bandwidth": 50.0 * GB,
           "nf4": True} | keys
    )  # fmt: skip


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of models that are on disk: all, unless a test takes some away."""
    names = set(ALL)

    def found(entry: Entry) -> Path | None:
        return Path("/models") / entry.name if entry.name in names else None

    monkeypatch.setattr(store, "on_disk", found)
    return names


def chosen(machine: Machine, **settings: Any) -> tuple[str, str]:
    found = choose(DaemonSettings(**settings), machine)
    return found.target.name, found.draft.name if found.draft is not None else ""


@pytest.mark.parametrize(
    ("machine", "target"),
    [
        (gpu(80), "Qwen2.5-Coder-32B"),
        (gpu(24), "Qwen2.5-Coder-14B"),
        (gpu(12), "Qwen2.5-Coder-7B"),
        (gpu(6), "Qwen2.5-Coder-1.5B"),
        (gpu(2.5), "Qwen2.5-Coder-0.5B"),
        (gpu(0.5), "starter"),
        (laptop(), "Qwen2.5-Coder-1.5B"),
        (laptop(bandwidth=200.0 * GB), "Qwen2.5-Coder-7B"),
        (laptop(bandwidth=12.0 * GB), "Qwen2.5-Coder-0.5B"),
        (laptop(bandwidth=2.0 * GB), "starter"),
        (laptop(free_bytes=2 * GB), "Qwen2.5-Coder-0.5B"),
        (laptop(free_bytes=GB // 2), "starter"),
        (laptop(nf4=False), "Qwen2.5-Coder-1.5B"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("there")
def test_the_largest_that_fits_and_is_fast_enough(machine: Machine, target: str) -> None:
    """Never the 3B, whose licence is for research."""
    assert chosen(machine)[0] == target


def test_what_is_not_on_disk_is_not_chosen(there: set[str]) -> None:
    there -= {"Qwen2.5-Coder-32B", "Qwen2.5-Coder-14B"}
    assert chosen(gpu(80)) == ("Qwen2.5-Coder-7B", "Qwen2.5-Coder-0.5B")
    there -= {name for name in ALL if name.startswith("Qwen")}
    assert chosen(gpu(80)) == ("starter", "")
    there.remove("starter")
    assert chosen(gpu(80)) == ("embedded", "embedded-draft")
    there.clear()
    with pytest.raises(ModelError, match="no model"):
        chosen(gpu(80))


def test_a_research_licence_only_when_named(there: set[str]) -> None:
    there &= {"Qwen2.5-Coder-3B", "Qwen2.5-Coder-0.5B", "starter"}
    assert chosen(gpu(80))[0] == "Qwen2.5-Coder-0.5B"
    assert chosen(gpu(80), model="qwen2.5-coder-3b") == ("Qwen2.5-Coder-3B", "Qwen2.5-Coder-0.5B")
    (mine,) = [c for c in candidates(DaemonSettings(), gpu(80)) if c.entry.name == "Qwen2.5-Coder-3B"]
    assert "Qwen-Research" in mine.obstacle


@pytest.mark.usefixtures("there")
def test_caches_of_compiled_kernels_take_half() -> None:
    def needed(**keys: Any) -> list[int]:
        return [
            found.needed_bytes for found in candidates(DaemonSettings(context_tokens=32768), laptop(**keys))
        ]

    torchs, compiled = needed(), needed(compiled=True)
    assert all(less < more for less, more in zip(compiled, torchs, strict=True))
    bf16 = DaemonSettings(quantisation="bf16")
    assert candidates(bf16, laptop(compiled=True)) == candidates(bf16, laptop())


def test_reasons_say_what_was_passed_over(there: set[str]) -> None:
    reasons = " | ".join(choose(DaemonSettings(), laptop()).reasons)
    assert "Qwen2.5-Coder-32B: needs 27" in reasons
    assert "Qwen2.5-Coder-7B: too slow to type with: 7." in reasons
    assert "Qwen2.5-Coder-3B: its licence" in reasons


def measured(ms: float, row: float = 0.0, draft: str = "", draft_ms: float = 0.0) -> Measured:
    return Measured(step_ms=((1, ms), (9, ms * (1 + 8 * row))), read_bytes=1, draft=draft, draft_ms=draft_ms)


@pytest.mark.usefixtures("there")
def test_what_was_measured_counts_more_than_arithmetic() -> None:
    for _ in range(3):
        speeds.note_load("Qwen2.5-Coder-1.5B", "nf4", "cpu", measured(125.0))
    assert chosen(laptop())[0] == "Qwen2.5-Coder-0.5B"
    speeds.note_load("Qwen2.5-Coder-7B", "nf4", "cpu", measured(50.0))
    assert chosen(laptop())[0] == "Qwen2.5-Coder-7B"
    by_name = {c.entry.name: c for c in candidates(DaemonSettings(), laptop())}
    assert by_name["Qwen2.5-Coder-7B"].measured_tokens_per_s == 20.0
    assert "8.0 tokens/s measured" in by_name["Qwen2.5-Coder-1.5B"].obstacle


@pytest.mark.usefixtures("there")
def test_steps_that_reached_more_of_the_memory_correct_the_arithmetic() -> None:
    load = Measured(step_ms=((1, 10.0),), read_bytes=500_000_000)
    speeds.note_load("Qwen2.5-Coder-0.5B", "int8", "cpu", load)
    assert chosen(laptop(bandwidth=2.0 * GB))[0] == "Qwen2.5-Coder-7B"


# ---- drafts ------------------------------------------------------------------------------------------------


def test_gain_of_a_draft() -> None:
    """Leviathan et al. 2022, table of their section 3: alpha 0.8, gamma 5, c = 0 gives 3.69."""
    assert draft_gain(0.0, 0.0, 0.8) > 3.69
    assert draft_gain(1.0, 0.0) == 1.0
    assert draft_gain(0.1, 0.0) > draft_gain(0.1, 0.1) > draft_gain(0.3, 0.1) > 1.0
    assert draft_gain(0.026, 0.0, 0.78) == pytest.approx(390 / 115, rel=0.05)


@pytest.mark.usefixtures("there")
def test_a_draft_that_does_not_pay_is_left_out() -> None:
    assert chosen(laptop(bandwidth=200.0 * GB))[1] == "Qwen2.5-Coder-0.5B"
    slow = measured(20.0, 0.1, "Qwen2.5-Coder-0.5B", 15.0)
    speeds.note_load("Qwen2.5-Coder-1.5B", "nf4", "cpu", slow)
    assert chosen(laptop()) == ("Qwen2.5-Coder-1.5B", "")
    assert "1.00 times" in choose(DaemonSettings(), laptop()).reasons[-1]
    speeds.note_load("Qwen2.5-Coder-1.5B", "nf4", "cpu", measured(20.0, 0.1))  # as loaded now
    assert chosen(laptop()) == ("Qwen2.5-Coder-1.5B", "")


def test_a_draft_that_is_not_there_is_named(there: set[str]) -> None:
    there.remove("Qwen2.5-Coder-0.5B")
    assert chosen(gpu(80)) == ("Qwen2.5-Coder-32B", "")
    assert "copilotd pull Qwen2.5-Coder-0.5B" in choose(DaemonSettings(), gpu(80)).reasons[-1]


@pytest.mark.usefixtures("there")
def test_the_larger_target_alone_before_a_smaller_pair() -> None:
    by_name = {c.entry.name: c for c in candidates(DaemonSettings(draft="none"), gpu(80))}
    alone = by_name["Qwen2.5-Coder-32B"].needed_bytes
    machine = gpu((alone + 1) / GB)
    assert chosen(machine) == ("Qwen2.5-Coder-32B", "")
    assert "does not fit beside it" in choose(DaemonSettings(), machine).reasons[-1]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("keys", [{"draft": "none"}, {"speculation": "off"}])
def test_no_draft_when_none_is_wanted(keys: dict[str, str]) -> None:
    assert chosen(gpu(80), **keys) == ("Qwen2.5-Coder-32B", "")


def test_a_draft_of_ones_own(there: set[str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert chosen(gpu(80), draft=str(tmp_path / "mine")) == ("Qwen2.5-Coder-32B", "mine")
    found = choose(DaemonSettings(draft="nowhere"), gpu(80))
    assert found.draft is None
    assert "'nowhere' is not on this machine" in found.draft_problem


def test_a_folder_of_ones_own(there: set[str], tmp_path: Path) -> None:
    found = choose(DaemonSettings(model=str(tmp_path)), laptop())
    assert (found.target.folder, found.target.entry, found.draft) == (tmp_path, None, None)
    with pytest.raises(ModelError, match="copilotd pull"):
        choose(DaemonSettings(model="nobody/nothing"), laptop())


@pytest.mark.usefixtures("there")
def test_without_torch_nothing_is_promised() -> None:
    with pytest.raises(ModelError, match=r"copilotd\[local\]"):
        chosen(laptop(local=False))
    assert choice.best_to_fetch(DaemonSettings(), laptop(local=False)) is None
    best = choice.best_to_fetch(DaemonSettings(), laptop())
    assert best is not None
    assert best.entry == named("Qwen2.5-Coder-1.5B")
