"""`copilotd doctor` as a person runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import json

from copilotd import cli
from copilotd.cli import doctor
from copilotd.daemon.checks import program
from copilotd.daemon.checks.finding import Finding, warning
from copilotd.engine.self_test import Identity
from tests.support.scripted import ScriptedDaemon


def findings(diagnosis: doctor.Diagnosis) -> dict[str, Finding]:
    """By name; of several the worst last."""
    return {finding.name: finding for section in diagnosis.sections for finding in section.findings}


def test_of_a_sound_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for title in ("Program", "Daemon", "Machine", "Models", "Workspace", "Editors"):
        assert f"\n{title}\n" in f"\n{said}"
    assert "0 failed" in said
    for line, below in zip(said.splitlines(), said.splitlines()[1:], strict=False):
        assert line.startswith("  warning") == below.startswith("           -> ")


def test_one_warning_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor.Section("Program", [warning("settings", "odd", "Mend it")])
    doctor._show(doctor.Diagnosis("1", "warning", [found]))
    assert capsys.readouterr().out.endswith("\n0 failed, 1 warning\n")


def test_as_json_with_a_running_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Path(os.environ["COPILOTD_HOME"])
    with ScriptedDaemon(home, settings='[daemon]\nlog_level = "debug"\n') as daemon:
        with daemon.client() as client:
            client.hello()
            client.ready()
            assert cli.main(["doctor", "--json"]) == 0
        found = findings(json.decode(capsys.readouterr().out, type=doctor.Diagnosis))
        assert f"pid {daemon.pid}" in found["daemon"].text
        assert "mode 600 in 700, yours" in found["socket"].text
        assert "daemon.log_level" in found["settings"].text
        assert len(daemon.records("load")) == 1


def test_the_models_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOTD_MODEL", "embedded")
    found = findings(doctor.diagnose(test=True))
    assert found["loaded"].text.startswith("embedded, int8")
    assert found["identity"].level == "ok"
    assert "1: " in found["steps"].text
    monkeypatch.setattr("copilotd.models.load.self_test", lambda runner: Identity(False, False))
    assert findings(doctor.diagnose(test=True))["identity"].level == "warning"


def test_a_model_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("COPILOTD_MODEL", str(tmp_path))
    found = findings(doctor.diagnose(test=True))["loaded"]
    assert (found.level, bool(found.remedy)) == ("failed", True)


def test_broken_settings_and_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(os.environ["COPILOTD_HOME"]) / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[daemon\n")
    real = program.installed
    monkeypatch.setattr(program, "installed", lambda name: "" if name == "torch" else real(name))
    assert cli.main(["doctor"]) == 1
    diagnosis = doctor.diagnose()
    found = findings(diagnosis)
    assert (found["settings"].level, found["libraries"].level) == ("failed", "failed")
    assert [section.title for section in diagnosis.sections if not section.findings] == ["Models"]


def test_with_a_team_server_nothing_of_models_here_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPILOTD_BACKEND", "openai")
    monkeypatch.setenv("COPILOTD_ENDPOINT", "http://127.0.0.1:1/v1")
    monkeypatch.setattr(program, "installed", lambda name: "")
    found = findings(doctor.diagnose(test=True))
    assert "on this machine" in found["server"].text
    assert found["libraries"].level == "ok"
    assert not {"device", "choice", "loaded"} & found.keys()


def test_a_check_that_fails_costs_its_own_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("somebody's text")

    monkeypatch.setattr("copilotd.daemon.checks.machine.check_processor", broken)
    diagnosis = doctor.diagnose()
    found = findings(diagnosis)
    assert found["Machine"].level == "failed"
    assert "somebody" not in found["Machine"].text
    assert found["cores"].level == "ok"
