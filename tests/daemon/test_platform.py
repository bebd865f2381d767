"""Folders and sockets: what is ours and usable, and what is left alone."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from copilotd.daemon import platform
from copilotd.daemon.platform import Unusable


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {"COPILOTD_HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(runtime)}


@pytest.fixture
def two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    places = [tmp_path / "one" / "copilotd", tmp_path / "two" / "copilotd"]
    monkeypatch.setattr(platform, "socket_folders", lambda environ: places)
    return places


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_places_in_order(tmp_path: Path) -> None:
    folders = platform.socket_folders({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert folders[0] == tmp_path / "copilotd"
    assert folders[-1] == platform.cache_folder({}) / platform.host()
    assert platform.socket_folders({"COPILOTD_HOME": str(tmp_path)}) == [tmp_path / "run"]


@pytest.mark.parametrize("runtime", ["relative", "/nowhere/at/all"])
def test_a_runtime_folder_that_is_not_there_is_not_made(runtime: str) -> None:
    assert runtime not in str(platform.socket_folders({"XDG_RUNTIME_DIR": runtime}))


def test_the_key_is_the_user_and_the_protocol() -> None:
    assert platform.key() == f"{os.getuid()}-{platform.PROTOCOL}"
    assert platform.key() in platform.socket_path(Path("/run")).name


def test_folder_and_socket_are_for_the_user_alone(environ: dict[str, str]) -> None:
    old = os.umask(0)
    try:
        server, path, problems = platform.listen(environ)
    finally:
        os.umask(old)
    with server:
        assert problems == []
        assert mode(path.parent) == 0o700
        assert mode(path) == 0o600


def test_a_folder_others_may_read_is_closed_to_them(environ: dict[str, str]) -> None:
    folder = platform.socket_folders(environ)[0]
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    server, _, _ = platform.listen(environ)
    with server:
        assert mode(folder) == 0o700


@pytest.mark.parametrize("wrong", [0o777, 0o720, 0o770])
def test_a_folder_others_may_write_to_is_refused(two_places: list[Path], wrong: int) -> None:
    two_places[0].mkdir(parents=True)
    two_places[0].chmod(wrong)
    server, path, problems = platform.listen({})
    with server:
        assert path.parent == two_places[1]
        assert str(two_places[0]) in problems[0]
        assert mode(two_places[0]) == wrong


def test_a_world_writable_parent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Unusable, match="every user may write"):
        platform.private_folder(tmp_path / "open" / "copilotd")
    (tmp_path / "open").chmod(0o1777)
    platform.private_folder(tmp_path / "open" / "copilotd")


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "copilotd").symlink_to(tmp_path / "real")
    with pytest.raises(Unusable, match="not a folder"):
        platform.private_folder(tmp_path / "copilotd")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    folder = platform.private_folder(tmp_path / "copilotd")
    os.chown(folder, 12345, 12345)
    with pytest.raises(Unusable, match="another user"):
        platform.private_folder(folder)


def test_a_left_over_socket_is_replaced(environ: dict[str, str]) -> None:
    server, path, _ = platform.listen(environ)
    inode = path.stat().st_ino
    server.close()  # the file stays, as after kill -9
    server, again, _ = platform.listen(environ)
    with server:
        assert again == path
        assert path.stat().st_ino != inode or path.is_socket()


def test_a_socket_that_answers_is_left_alone(two_places: list[Path]) -> None:
    first, path, _ = platform.listen({})
    inode = path.stat().st_ino
    second, other, problems = platform.listen({})
    with first, second:
        assert other.parent == two_places[1]
        assert "another process answers" in problems[0]
        assert path.stat().st_ino == inode


def test_a_file_in_the_way_is_named_and_left_alone(two_places: list[Path]) -> None:
    way = platform.socket_path(platform.private_folder(two_places[0]))
    way.write_text("mine")
    server, path, problems = platform.listen({})
    with server:
        assert path.parent == two_places[1]
        assert str(way) in problems[0]
        assert way.read_text() == "mine"


def test_no_place_left_names_every_reason(environ: dict[str, str]) -> None:
    way = platform.socket_path(platform.private_folder(platform.socket_folders(environ)[0]))
    way.write_text("mine")
    with pytest.raises(Unusable, match=way.name):
        platform.listen(environ)
    assert way.read_text() == "mine"


def test_a_path_too_long_for_a_socket_is_shortened_the_same_way_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    path = platform.socket_path(folder)
    assert len(os.fsencode(path)) <= platform.SOCKET_PATH_BYTES
    assert path == platform.socket_path(folder)
    assert path != platform.socket_path(tmp_path / ("deeq" * 30))
    server, used, _ = platform.listen({"COPILOTD_HOME": str(folder)})
    with server:
        assert used == platform.socket_path(folder / "run")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(used))
            assert platform.peer_uid(client) == os.getuid()
            assert platform.is_ours(client)
    used.unlink()


def test_another_users_peer_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert platform.is_ours(one)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        assert not platform.is_ours(one)


def test_windows_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    platform.require_supported()
    monkeypatch.setattr(platform.sys, "platform", "win32")
    with pytest.raises(platform.Unsupported, match="WSL"):
        platform.require_supported()


def test_our_processes_start_isolated() -> None:
    command = platform.serve_command()
    assert "-P" in command[:2]


@pytest.mark.parametrize(
    ("supplies", "battery"),
    [
        ({}, False),
        ({"BAT0": ("Battery", None)}, False),
        ({"AC": ("Mains", "1"), "BAT0": ("Battery", None)}, False),
        ({"AC": ("Mains", "0"), "BAT0": ("Battery", None)}, True),
        ({"AC": ("Mains", "0"), "USB": ("Mains", "1")}, False),
    ],
)
def test_battery(tmp_path: Path, supplies: dict[str, tuple[str, str | None]], battery: bool) -> None:
    for name, (kind, online) in supplies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(kind + "\n")
        if online is not None:
            (tmp_path / name / "online").write_text(online + "\n")
    assert platform.on_battery(tmp_path) == battery
