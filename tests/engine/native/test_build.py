"""The library: compiled once, kept, loaded only where nobody else could have written it, and clear words otherwise."""

from __future__ import annotations

import ctypes
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from copilotd.engine.native import build, library
from copilotd.engine.native.build import CannotBuild, NoKernels, built
from tests.support.kernels import holds_here


def program(folder: Path, script: str) -> Path:
    """Stands in for a compiler, which would be slow; the file it is to write is `$out`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cc"
    path.write_text(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ $1 = -o ] && out=$2; shift; done\n"
        f"echo x >> {folder}/calls\n{script}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the tests may hold a library."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that writes a word."""
    path = program(tmp_path / "bin", 'echo compiled > "$out"')
    monkeypatch.setattr(shutil, "which", lambda name: str(path) if name == "cc" else None)
    return path


def calls(compiler: Path) -> int:
    log = compiler.parent / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_library_is_compiled_once_and_kept(compiler: Path) -> None:
    first = built()
    assert first.read_bytes().startswith(b"compiled\n")
    assert first.parent == build.root() == Path(os.environ["COPILOTD_HOME"]) / "cache" / "kernels"
    assert not first.stat().st_mode & 0o022
    assert not first.parent.stat().st_mode & 0o022
    assert built() == first
    assert calls(compiler) == 1
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_a_real_one_is_loaded_and_computes() -> None:
    holds_here("compiled")
    path = built()
    before = path.stat().st_mtime_ns
    kernels = ctypes.CDLL(str(path))
    kernels.activations_bytes.restype = ctypes.c_int64
    assert kernels.activations_bytes(ctypes.c_int64(3), ctypes.c_int64(65)) >= 3 * 2 * 64
    assert built() == path
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["cut", "empty", "zeros"])
def test_a_damaged_one_is_compiled_again(compiler: Path, damage: str) -> None:
    """As a power cut or a full disk leaves it: to load it would end the process."""
    path = built()
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-1], "empty": b"", "zeros": bytes(len(whole))}[damage])
    assert built() == path
    assert path.read_bytes() == whole
    assert calls(compiler) == 2


def test_one_that_the_system_refuses_is_a_reason(compiler: Path) -> None:
    """A word of text here; a file system that allows no programs says the same."""
    with pytest.raises(CannotBuild, match=r"file too short|invalid ELF header"):
        library.loaded(built())


@pytest.mark.parametrize("change", ["flags", "a source", "a header", "the processor"])
def test_another_library_for_other_circumstances(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    """And the one before goes: it would never be used again."""
    sources = Path(shutil.copytree(build.SOURCES, tmp_path / "kernels"))
    monkeypatch.setattr(build, "SOURCES", sources)
    first = built()
    if change == "flags":
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O3"))
    elif change in ("a source", "a header"):
        file = sources / ("product.c" if change == "a source" else "lanes.h")
        file.write_text(file.read_text() + "\n")
    else:
        monkeypatch.setattr(build, "_processor", lambda: "flags: avx2 avx512f")
    second = built()
    assert second != first
    assert calls(compiler) == 2
    assert second.is_file()
    assert not first.exists()


def test_the_order_of_compilers(monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    asked: list[str] = []

    def which(name: str) -> str | None:
        asked.append(name)
        return str(compiler) if name == "clang" else None

    monkeypatch.setattr(shutil, "which", which)
    assert built().is_file()
    assert asked == ["cc", "gcc", "clang"]


def test_without_a_compiler_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CannotBuild, match="no C compiler: install gcc or clang"):
        built()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo \"product.c:7: error: unknown type 'lanes'\" >&2; echo more >&2; exit 1", r"cc fails: product\.c:7: error"),
        ('echo half > "$out"; exit 3', r"cc fails: no message"),
        ('echo half > "$out"; exec sleep 30', r"cc takes more than 0 s"),
        ("exit 0", r"kernels: No such file or directory"),
    ],
)  # fmt: skip
def test_a_compiler_that_fails(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """Nothing of it stays, and the next attempt may succeed."""
    monkeypatch.setattr(build, "LIMIT_S", 0.3 if "sleep" in script else 60.0)
    program(compiler.parent, script)
    with pytest.raises(CannotBuild, match=message):
        built()
    assert list(build.root().iterdir()) == []
    program(compiler.parent, 'echo compiled > "$out"')
    monkeypatch.setattr(build, "LIMIT_S", 60.0)
    assert built().is_file()


def test_a_compiler_that_cannot_be_started(compiler: Path) -> None:
    compiler.chmod(0o644)
    if os.access(compiler, os.X_OK):
        pytest.skip("root may execute it")
    with pytest.raises(CannotBuild, match="denied"):
        built()


def test_other_processors_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(CannotBuild, match="no kernels for aarch64"):
        built()


# ---- who may have written it -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_library_that_others_could_write_is_made_anew(compiler: Path, mode: int) -> None:
    library = built()
    library.write_text("somebody's")
    library.chmod(mode)
    assert built() == library
    assert library.read_bytes().startswith(b"compiled\n")
    assert not library.stat().st_mode & 0o022
    assert calls(compiler) == 2


def test_a_link_in_its_place_is_not_followed(compiler: Path, tmp_path: Path) -> None:
    library = built()
    theirs = tmp_path / "theirs.so"
    theirs.write_text("somebody's")
    library.unlink()
    library.symlink_to(theirs)
    assert built().read_bytes().startswith(b"compiled\n")
    assert not library.is_symlink()
    assert theirs.read_text() == "somebody's"


@pytest.mark.parametrize("what", ["library", "folder"])
def test_what_is_somebody_elses_is_not_loaded(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    library = built()
    theirs = library if what == "library" else library.parent
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        state = real(path)
        return os.stat_result((*state[:4], os.geteuid() + 1, *state[5:])) if path == theirs else state

    monkeypatch.setattr(Path, "lstat", lstat)
    if what == "library":
        built()
        assert calls(compiler) == 2
    else:
        with pytest.raises(CannotBuild, match="could be written by others: remove it"):
            built()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("kept", [False, True])
def test_a_folder_that_others_can_write_is_refused(compiler: Path, mode: int, kept: bool) -> None:
    """Also where a library lies in it that looks like ours: theirs could be in its place a moment later."""
    if kept:
        built()
    build.root().mkdir(parents=True, exist_ok=True)
    build.root().chmod(mode)
    with pytest.raises(CannotBuild, match="could be written by others: remove it"):
        built()


# ---- a folder that cannot be used --------------------------------------------------------------------------


def test_a_file_in_the_folders_place(compiler: Path) -> None:
    build.root().parent.mkdir(parents=True)
    build.root().write_text("")
    with pytest.raises(CannotBuild, match="kernels: "):
        built()


def test_a_folder_that_cannot_be_made(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(CannotBuild, match="kernels: Read-only file system"):
        built()


def test_what_was_kept_serves_where_nothing_can_be_written(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = built()
    monkeypatch.setattr(Path, "mkdir", lambda *words, **more: pytest.fail("not needed"))
    assert built() == library


# ---- asked beforehand --------------------------------------------------------------------------------------


def test_what_would_be_used_is_known_without_making_it(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.usable()
    planned, by = build.found()
    assert by == str(compiler)
    assert not build.root().exists()
    assert calls(compiler) == 0
    assert built() == planned
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert build.found() == (planned, "")
    assert build.usable()
    planned.unlink()
    assert not build.usable()


def test_only_what_a_person_can_help_is_a_trouble(monkeypatch: pytest.MonkeyPatch, compiler: Path) -> None:
    build.root().mkdir(parents=True)
    build.root().chmod(0o777)
    assert not build.usable()
    with pytest.raises(CannotBuild) as trouble:
        build.found()
    assert not isinstance(trouble.value, NoKernels)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(NoKernels):
        build.found()
    assert not build.usable()


# ---- in the environment ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_the_setup_compiles_into_the_environment(
    compiler: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on nobody compiles, whoever starts."""
    runpy.run_module("copilotd.engine.native.build", run_name="__main__")
    path = Path(capsys.readouterr().out.strip())
    assert path.parent == build.installed()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert built() == path
    assert not build.root().exists()
    path.chmod(0o777)
    with pytest.raises(CannotBuild, match="no C compiler"):
        built()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_the_setup_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"runs by torch's kernels: there is no C compiler"):
        runpy.run_module("copilotd.engine.native.build", run_name="__main__")


# ---- from process to process -------------------------------------------------------------------------------


def test_two_that_start_at_once_both_get_it(compiler: Path) -> None:
    """Each compiles under a name of its own and puts it in its place in one move."""
    program(compiler.parent, 'sleep 0.5; echo compiled > "$out"')
    code = (
        "import shutil, sys; from copilotd.engine.native.build import built\n"
        f"sys.prefix, shutil.which = {sys.prefix!r}, lambda name: {str(compiler)!r}\n"
        "print(built().read_bytes()[:9].decode(), end='')"
    )
    path = Path(__file__).resolve().parents[3]
    starts = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            env=os.environ | {"PYTHONPATH": str(path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [start.communicate(timeout=250)[0] for start in starts] == ["compiled\n"] * 2
    assert len(list(build.root().iterdir())) == 1


def test_a_failure_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody installs a compiler: the next load finds it."""
    holds_here("compiled")
    path = Path(library.kernels()._name)
    library.kernels.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(CannotBuild):
            library.kernels()
    monkeypatch.setattr(library, "built", lambda: path)
    assert library.kernels().step
