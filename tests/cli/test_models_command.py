from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from copilotd.cli import main
from copilotd.models import speeds, store


@pytest.fixture(autouse=True)
def no_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("COPILOTD_DEVICE", "cpu")


def test_the_catalogue_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    folder = store.models_folder() / "Qwen2.5-Coder-0.5B"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    load = speeds.Measured(step_ms=((1, 20.0),), read_bytes=1)
    speeds.note_load("Qwen2.5-Coder-0.5B", "int8", "cpu", load)
    assert main(["models", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in report["models"]}
    assert list(rows) == [
        "Qwen2.5-Coder-32B", "Qwen2.5-Coder-14B", "Qwen2.5-Coder-7B", "Qwen2.5-Coder-3B", "Qwen2.5-Coder-1.5B",
        "Qwen2.5-Coder-0.5B", "starter", "embedded",
    ]  # fmt: skip
    assert rows["Qwen2.5-Coder-3B"]["licence"] == "Qwen-Research"
    half = rows["Qwen2.5-Coder-0.5B"]
    assert half["folder"] == str(folder)
    assert half["measured_tokens_per_s"] == 50.0
    assert half["expected_tokens_per_s"] > 0
    assert 1e9 < half["needed_bytes"] < 3e9
    assert report["target"] == next(row["name"] for row in report["models"] if row["chosen"])
    assert report["bandwidth_bytes_per_s"] > 0


def test_for_a_person_on_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line[:1] in " *" and line[2:3] not in ("", " ")]
    assert max(len(line) for line in table[:9]) <= 80
    assert any(line.startswith("* embedded ") for line in lines)
    assert any("copilotd pull starter" in line for line in lines)


def test_a_model_that_is_named_but_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOTD_MODEL", "Qwen2.5-Coder-32B")
    assert main(["models"]) == 0
    assert (
        "'Qwen2.5-Coder-32B' is not on this machine: `copilotd pull Qwen2.5-Coder-32B`"
        in capsys.readouterr().out
    )


def test_without_torch_it_still_lists(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["models"]) == 0
    assert "pip install '/path/to/copilotd[local]'" in capsys.readouterr().out
