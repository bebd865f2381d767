"""Settings from the system, the user and the environment; locks; mistakes that name their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from copilotd.cli.config import settings_lines
from copilotd.config import (
    KEYS,
    DaemonSettings,
    Loaded,
    SessionSettings,
    Settings,
    SettingsError,
    load,
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "system.toml", tmp_path / "user.toml"


def test_without_files_everything_is_the_default(files: tuple[Path, Path]) -> None:
    assert load(*files, {}) == Loaded()


def test_later_sources_win(files: tuple[Path, Path]) -> None:
    system, user = files
    system.write_text('[daemon]\nmodel = "a"\ndraft = "a"\nthreads = 1\n')
    user.write_text('[daemon]\nmodel = "b"\ndraft = "b"\n[session]\nmultiline = "never"\n')
    loaded = load(system, user, {"COPILOTD_MODEL": "c", "COPILOTD_TOP_P": "0.5", "COPILOTD_SOCKET": "/s"})
    daemon = loaded.settings.daemon
    assert (daemon.model, daemon.draft, daemon.threads, daemon.top_p) == ("c", "b", 1, 0.5)
    assert loaded.settings.session.multiline == "never"
    assert loaded.sources == {
        "daemon.model": "environment COPILOTD_MODEL",
        "daemon.top_p": "environment COPILOTD_TOP_P",
        "daemon.draft": str(user),
        "daemon.threads": str(system),
        "session.multiline": str(user),
    }


def test_a_locked_key_is_the_systems(files: tuple[Path, Path]) -> None:
    system, user = files
    system.write_text('lock = ["daemon.model", "session.enabled"]\n[daemon]\nmodel = "a"\n')
    user.write_text('[daemon]\nmodel = "b"\n[session]\nenabled = false\n')
    loaded = load(system, user, {"COPILOTD_MODEL": "c"})
    assert loaded.settings.daemon.model == "a"
    assert loaded.settings.session.enabled
    assert loaded.enforce(SessionSettings(enabled=False, max_new_tokens=5)) == SessionSettings(
        max_new_tokens=5
    )
    assert loaded.session({"enabled": False, "multiline": "never", "model": "evil"}) == SessionSettings(
        multiline="never"
    )


def test_an_editors_value_of_the_wrong_type_is_named(files: tuple[Path, Path]) -> None:
    with pytest.raises(SettingsError, match="max_latency_ms"):
        load(*files, {}).session({"max_latency_ms": "soon"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[daemon]\nthreads = -1\n", "daemon.threads"),
        ('[daemon]\nquantisation = "nf5"\n', "daemon.quantisation` (one of auto, nf4, int8, bf16, fp32)"),
        ("[daemon]\nfoo = 1\n", "no such setting: daemon.foo"),
        ("[daemon]\nmodell = 1\n", "daemon.modell; do you mean daemon.model?"),
        ("[session]\nmultilin = 1\n", "session.multilin; do you mean session.multiline?"),
        ('[session]\nmodel = "a"\n', "session.model; do you mean daemon.model?"),
        ('model = "a"\n', "no such setting: model; do you mean daemon.model?"),
        ("[deamon]\nthreads = 1\n", "deamon; do you mean [daemon]?"),
        ("daemon = 1\n", "daemon"),
        ('lock = ["daemon.model"]\n', "lock"),
        ("[daemon]\ntemperature = -1\n", "daemon.temperature"),
        ('[daemon]\ntemperature = "hot"\n', "daemon.temperature"),
        ("[daemon]\ntemperature = nan\n", "daemon.temperature"),
        ("[daemon]\ntemperature = inf\n", "daemon.temperature"),
        ("[daemon]\ntop_p = 1.5\n", "daemon.top_p"),
        ("[daemon]\ntop_p = nan\n", "daemon.top_p"),
    ],
)
def test_a_mistake_names_the_file_and_the_key_and_costs_no_other(
    files: tuple[Path, Path], text: str, named: str
) -> None:
    system, user = files
    user.write_text(text)
    [problem] = load(system, user, {}).problems
    assert str(user) in problem
    assert named in problem
    assert "?" in named or "do you mean" not in problem
    assert load(system, user, {}).settings == Loaded().settings
    if "[daemon]\n" in text:
        user.write_text(text + 'draft = "none"\n')
        assert load(system, user, {}).settings == Settings(daemon=DaemonSettings(draft="none"))


def test_a_variable_of_the_wrong_type(files: tuple[Path, Path]) -> None:
    environ = {"COPILOTD_THREADS": "many", "COPILOTD_TEMPERATURE": "null", "COPILOTD_DRAFT": "none"}
    loaded = load(*files, environ)
    assert sorted(problem.split(":")[0] for problem in loaded.problems) == [
        "environment variable COPILOTD_TEMPERATURE",
        "environment variable COPILOTD_THREADS",
    ]
    assert loaded.settings == Settings(daemon=DaemonSettings(draft="none"))


def test_files_that_are_no_settings_and_a_lock_of_nothing(files: tuple[Path, Path]) -> None:
    system, user = files
    user.write_text("[daemon\n")
    with pytest.raises(SettingsError, match="line 1"):
        load(system, user, {})
    user.unlink()
    system.write_text('lock = ["daemon.modell"]\n')
    with pytest.raises(SettingsError, match=r"daemon\.modell"):
        load(system, user, {})


def test_unreadable_bytes_are_named(files: tuple[Path, Path]) -> None:
    system, user = files
    user.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=user.name):
        load(system, user, {})


def test_every_key_is_shown_with_its_source(files: tuple[Path, Path]) -> None:
    system, user = files
    system.write_text('lock = ["daemon.seed"]\n')
    user.write_text("[daemon]\nthreads = 2\n")
    lines = {line.key: line for line in settings_lines(load(system, user, {}))}
    assert set(lines) == KEYS
    assert (lines["daemon.threads"].value, lines["daemon.threads"].source) == (2, str(user))
    assert lines["daemon.model"].source == "default"
    assert lines["daemon.seed"].locked
    assert all(line.meaning.endswith(".") for line in lines.values())
