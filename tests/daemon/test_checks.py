"""Each check of `copilotd doctor`: what it says of a sound machine, and of what is wrong, with a remedy."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from msgspec import structs

from copilotd.backends.base import Calibration, Description, Identity
from copilotd.config import DaemonSettings
from copilotd.daemon import platform
from copilotd.daemon.checks import editors, machine, models, place, program, server, workspace
from copilotd.daemon.checks.finding import Finding
from copilotd.daemon.status import Index, Status
from copilotd.engine.native import build

HERE = DaemonSettings()


def one(findings: Iterable[Finding], name: str) -> Finding:
    [found] = [finding for finding in findings if finding.name == name]
    assert bool(found.remedy) == (found.level in ("warning", "failed")), found
    return found


def a_status(**fields: object) -> Status:
    known: dict[str, object] = {"pid": 1, "version": "1", "uptime_s": 60.0, "state": "ready"}
    return Status(**(known | fields))  # type: ignore[arg-type]


# ---- program and settings ----------------------------------------------------------------------------------


def test_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    there = dict.fromkeys(program.LOCAL, "1.0") | {"bitsandbytes": "0.50.2"}
    monkeypatch.setattr(program, "installed", lambda name: there.get(name, ""))
    assert one(program.check_libraries(local=True), "libraries").level == "ok"
    there["bitsandbytes"] = "0.49.3"
    assert "0.50" in one(program.check_libraries(local=True), "bitsandbytes").remedy
    del there["torch"]
    found = one(program.check_libraries(local=True), "libraries")
    assert found.level == "failed"
    assert "copilotd[local]" in found.remedy
    there.clear()
    assert one(program.check_libraries(local=False), "libraries").level == "ok"


def user_file() -> Path:
    file = Path(os.environ["COPILOTD_HOME"]) / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_settings_and_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    user_file().write_text("[daemon]\nthreads = 1\n")
    monkeypatch.setenv("COPILOTD_DEVICE", "cpu")
    loaded, findings = program.read_settings()
    assert loaded.settings.daemon.threads == 1
    text = one(findings, "settings").text
    assert "daemon.device from environment COPILOTD_DEVICE" in text
    assert str(user_file()) in text


def test_settings_that_cannot_be_read_cost_the_rest_nothing() -> None:
    user_file().write_text("[daemon\n")
    loaded, findings = program.read_settings()
    assert loaded.settings.daemon == HERE
    assert one(findings, "settings").level == "failed"


def test_settings_that_others_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    user_file().write_text("[daemon]\nthreads = -1\n")
    user_file().chmod(0o622)
    findings = program.read_settings()[1]
    assert [finding.level for finding in findings] == ["ok", "warning", "warning"]
    assert "chmod go-w" in findings[1].remedy
    assert "daemon.threads" in findings[2].text


def test_a_wrong_name_is_mended_otherwise_than_a_wrong_value() -> None:
    user_file().write_text("[daemon]\nthreads = -1\nmodell = 'a'\n")
    value, name = (found for found in program.read_settings()[1] if found.level == "warning")
    assert "mend the value" in value.remedy
    assert "daemon.model?" in name.text
    assert "correct its name or remove it" in name.remedy
    assert "value" not in name.remedy


# ---- the daemon's place ------------------------------------------------------------------------------------


def test_a_free_place_and_one_that_is_not_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(asyncio.run(place.check_socket()), "socket").level == "ok"
    folder = Path(os.environ["COPILOTD_HOME"]) / "run"
    folder.chmod(0o777)
    found = one(asyncio.run(place.check_socket()), "socket")
    assert (found.level, str(folder) in found.text) == ("failed", True)
    taken = tmp_path / "a-file"
    taken.touch()
    monkeypatch.setenv("COPILOTD_HOME", str(taken))
    assert one(asyncio.run(place.check_socket()), "socket").level == "failed"


def test_a_daemon_by_its_state() -> None:
    assert one(place.check_daemon(None), "daemon").level == "skipped"
    one_editor = one(place.check_daemon(a_status(clients=1, documents=2)), "daemon")
    assert (one_editor.level, "1 editor, 2 documents" in one_editor.text) == ("ok", True)
    assert one(place.check_daemon(a_status(last_error="x")), "daemon").level == "warning"
    failed = one(place.check_daemon(a_status(state="failed", message="no model")), "daemon")
    assert (failed.level, "no model" in failed.text) == ("failed", True)


def test_a_full_disk_and_one_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    assert one(place.check_disk(), "disk").level == "warning"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**12))
    assert one(place.check_disk(), "disk").level == "ok"
    platform.state_folder().parent.mkdir(parents=True)
    platform.state_folder().touch()
    assert "cannot be written" in next(iter(place.check_disk())).text


# ---- the machine -------------------------------------------------------------------------------------------


def test_processors(tmp_path: Path) -> None:
    def level(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text)
        return one(machine.check_processor(tmp_path / "cpuinfo"), "processor").level

    assert level("model name\t: Old\nflags\t\t: fpu sse2\n") == "warning"
    assert level("model name\t: New\nflags\t\t: fpu avx2 avx512_bf16\n") == "ok"
    assert level("Features\t: fp asimd\n") == "ok"
    assert level("") == "skipped"


def test_a_container_with_fewer_cores_than_it_sees(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("50000 100000\n")
    cores = one(machine.check_threads(HERE, quota), "cores")
    assert "threads = 1" in cores.remedy
    assert one(machine.check_threads(DaemonSettings(threads=1), quota), "cores").level == "ok"
    quota.write_text("max 100000\n")
    assert one(machine.check_threads(HERE, quota), "cores").level == "ok"
    assert one(machine.check_threads(DaemonSettings(threads=256), quota), "cores").level == "warning"


def test_a_gpu_that_torch_does_not_see(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    driver = tmp_path / "version"
    assert one(machine.check_device(HERE, driver), "device").level == "ok"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n")
    found = one(machine.check_device(HERE, driver), "device")
    assert (found.level, "550.54.15" in found.text) == ("warning", True)
    assert one(machine.check_device(DaemonSettings(device="cpu"), driver), "device").level == "ok"
    assert one(machine.check_device(DaemonSettings(device="cuda"), driver), "device").level == "failed"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, on an x86 processor, and nothing compiled by it. To start it is an error."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/cc")
    monkeypatch.setattr("subprocess.run", lambda *words, **more: pytest.fail("started"))


@pytest.mark.usefixtures("compiler")
def test_compiled_kernels_that_are_there_or_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.check_kernels(HERE, None)
    assert (found.level, "at the first start, by /usr/bin/cc" in found.text) == ("ok", True)
    there = build.root() / "kernels.so"
    monkeypatch.setattr(build, "found", lambda: (there, ""))
    monkeypatch.setattr(machine, "loaded", lambda path: path)
    found = machine.check_kernels(HERE, None)
    assert (found.level, str(there) in found.text) == ("ok", True)


@pytest.mark.usefixtures("compiler")
def test_a_compiler_that_made_none_when_models_were_loaded() -> None:
    here = a_status(target="T", device="cpu")
    found = machine.check_kernels(HERE, here)
    assert (found.level, "copilotd.engine.native.build" in found.remedy) == ("warning", True)
    for elsewhere in (a_status(), structs.replace(here, device="cuda")):
        assert machine.check_kernels(HERE, elsewhere).level == "ok"


def test_compiled_kernels_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = tmp_path / "x.so"
    refused.write_bytes(b"no library")
    monkeypatch.setattr(build, "found", lambda: (refused, ""))
    found = machine.check_kernels(HERE, None)
    assert found.level == "warning"
    assert str(refused) in found.text
    assert "file system" in found.text


@pytest.mark.usefixtures("compiler")
def test_a_folder_for_kernels_that_others_can_write() -> None:
    build.root().mkdir(parents=True)
    build.root().chmod(0o777)
    found = machine.check_kernels(HERE, None)
    assert (found.level, f"{build.root()} could be written" in found.text) == ("warning", True)


@pytest.mark.usefixtures("compiler")
def test_no_compiled_kernels_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.check_kernels(DaemonSettings(kernels="torch"), None)
    assert (found.level, "in the settings" in found.text) == ("ok", True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = machine.check_kernels(HERE, None)
    assert (found.level, "install gcc or clang" in found.text) == ("warning", True)
    assert "copilotd reload" in found.remedy
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    found = machine.check_kernels(HERE, None)
    assert (found.level, "aarch64" in found.text) == ("skipped", True)


@pytest.mark.usefixtures("compiler")
def test_kernels_are_said_of_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And bitsandbytes' only where they are the ones that are used."""

    def names(**settings: object) -> set[str]:
        return {finding.name for finding in machine.check_device(DaemonSettings(**settings))}  # type: ignore[arg-type]

    assert names(device="cpu") == {"device", "kernels"}
    assert names(device="cpu", kernels="torch") == {"device", "kernels", "nf4"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 2))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    assert names() == {"device"}


def test_without_torch_the_device_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda name: "")
    assert one(machine.check_device(HERE), "device").level == "skipped"


# ---- models ------------------------------------------------------------------------------------------------


def test_with_nothing_better_than_the_embedded_pair_the_choices_are_named() -> None:
    findings = list(models.check_choice(HERE))
    [lacking] = [finding for finding in findings if finding.level == "warning"]
    assert "starter: 93 MB from the Python package index" in lacking.remedy
    assert one(findings, "target files").level == "ok"
    named = models.check_choice(DaemonSettings(model="embedded"))
    assert {finding.level for finding in named} == {"ok"}


def test_a_model_that_is_not_there_and_one_that_lacks_files(tmp_path: Path) -> None:
    found = one(models.check_choice(DaemonSettings(model="Qwen2.5-Coder-32B")), "choice")
    assert (found.level, "copilotd pull" in found.remedy) == ("failed", True)
    (tmp_path / "config.json").touch()
    found = one(models.check_choice(DaemonSettings(model=str(tmp_path))), "target files")
    assert (found.level, "tokenizer.json" in found.text) == ("failed", True)


def test_what_a_load_found() -> None:
    assert one(models.check_loaded(None), "loaded").level == "skipped"
    good = Description(
        target="T",
        device="cpu",
        quantisation="int8",
        identity=Identity(speculation=True, cache=True),
        calibration=Calibration(2, ((1, 5.0), (2, 6.5)), ((1, 1.0),), 900.0),
    )
    findings = list(models.check_loaded(good))
    assert {finding.level for finding in findings} == {"ok"}
    assert "1: 5.0  2: 6.5" in one(findings, "steps").text
    assert one(findings, "speed").text.startswith("2 threads, 200 tokens/s")
    good = structs.replace(good, calibration=structs.replace(good.calibration, threads=1))
    assert one(models.check_loaded(good), "speed").text.startswith("1 thread, ")
    bad = Description(target="T", identity=Identity(speculation=False, cache=False))
    assert one(models.check_loaded(bad), "identity").level == "warning"


def test_a_server_by_its_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**settings: object) -> Finding:
        return one(server.check_server(DaemonSettings(backend="openai", **settings)), "server")  # type: ignore[arg-type]

    assert asked().level == "failed"
    assert "allow_plaintext" in asked(endpoint="http://models.example/v1").text
    monkeypatch.setenv("COPILOTD_API_KEY", "canary")
    found = asked(endpoint="https://models.example/v1")
    assert (found.level, "encrypted, with a key" in found.text) == ("ok", True)
    assert "canary" not in found.text


# ---- workspace and editors ---------------------------------------------------------------------------------


def test_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("max_user_watches", 8192), ("max_user_instances", 128)):
        (tmp_path / name).write_text(f"{number}\n")
    assert "max_user_watches" in one(workspace.check_watches(tmp_path), "watches").remedy
    (tmp_path / "max_user_watches").write_text("524288\n")
    assert one(workspace.check_watches(tmp_path), "watches").level == "ok"
    monkeypatch.setattr(workspace, "_no_instance", lambda: "no instance is left (EMFILE)")
    assert "max_user_instances" in one(workspace.check_watches(tmp_path), "watches").remedy


def test_the_index() -> None:
    index = Index(folders=1, files=3, tokens=9, skipped={"secret": 1})
    said = one(workspace.check_index(HERE, a_status(index=index)), "index").text
    assert said == "1 folder, 3 files, 9 tokens; left out: 1 secret"
    assert one(workspace.check_index(HERE, None), "index").level == "skipped"
    assert one(workspace.check_index(DaemonSettings(index=False), None), "index").level == "skipped"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_the_program_on_path(programs: Path) -> None:
    environ = {"PATH": str(programs)}
    assert one(editors.check_path(environ), "path").level == "warning"
    script(programs / "copilotd", "true")
    assert "another copilotd" in one(editors.check_path(environ), "path").text


@pytest.mark.parametrize(
    ("says", "level"), [("NVIM v0.12.2", "ok"), ("NVIM v0.10.4", "warning"), ("no", "warning")]
)
def test_neovim(programs: Path, tmp_path: Path, says: str, level: str) -> None:
    script(programs / "nvim", f"echo '{says}'; echo more")
    assert one(editors.check_editors(tmp_path, {"PATH": str(programs)}), "Neovim").level == level


def test_vs_code(programs: Path, tmp_path: Path) -> None:
    environ = {"PATH": str(programs)}
    assert one(editors.check_editors(tmp_path, environ), "editors").level == "skipped"
    script(programs / "code", f"touch {tmp_path}/was-run")
    assert "install-extension" in one(editors.check_editors(tmp_path, environ), "VS Code").remedy
    manifest = tmp_path / ".vscode" / "extensions" / "copilotd.copilotd-0.1.0" / "package.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"version": "0.1.0"}')
    found = one(editors.check_editors(tmp_path, environ), "VS Code")
    assert (found.level, "0.1.0" in found.text) == ("ok", True)
    assert not (tmp_path / "was-run").exists()


def test_nothing_of_the_folder_one_stands_in_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "nvim", f"touch {tmp_path}/was-run")
    monkeypatch.chdir(tmp_path)
    assert next(iter(editors.check_editors(tmp_path, {"PATH": ".::bin"}))).name == "editors"
    assert not (tmp_path / "was-run").exists()
