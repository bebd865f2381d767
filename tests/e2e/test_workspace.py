"""The workspace as a source of drafts, and what of it is never read: the real program on real weights."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.test_daemon_and_front import status
from tests.support.lsp_driver import LspProcess
from tests.support.scripted import own_folder_environment

FAR = "settlement_ledger.append(PostedEntry(account=counterparty, amount=-remainder, booked=today))"


def wait_for(
    env: dict[str, str], holds: Callable[[dict[str, Any]], bool], seconds: float = 120.0
) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while not holds(seen := status(env)):
        assert time.monotonic() < end, seen
        time.sleep(0.2)
    return seen


def files(seen: dict[str, Any]) -> int:
    """Files in the index; none while no daemon runs."""
    return int(seen["index"]["files"]) if "index" in seen else 0


def test_drafts_come_from_other_files_and_never_from_secret_ones(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "ledger.py").write_text(f"def settle(counterparty, remainder, today):\n    {FAR}\n")
    (root / ".env").write_text("PAY_KEY=canary-env\n")
    (root / "ignored.py").write_text("canary_ignored = 1\n")
    (root / ".gitignore").write_text("ignored.py\n")
    env = own_folder_environment(tmp_path / "home") | {
        "COPILOTD_MODEL": "embedded",
        "COPILOTD_DRAFT": "none",
        "COPILOTD_SPECULATION": "on",
    }
    pid = 0
    try:
        with LspProcess(env) as editor:
            editor.initialize(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}])
            seen = wait_for(env, lambda seen: seen["state"] == "ready" and files(seen) >= 2)
            pid = seen["pid"]
            assert seen["index"]["files"] == 2  # ledger.py and .gitignore
            assert seen["index"]["skipped"] == {"ignored": 1, "secret": 1}

            new = (root / "new.py").as_uri()
            half = FAR[: FAR.index("amount")]
            editor.open(new, "")
            end = time.monotonic() + 60
            for number in itertools.count(1):  # the first may come before the index has reached the engine
                assert time.monotonic() < end, "nothing was drafted from another file"
                editor.change(
                    new, number, f"def refund{number}(counterparty, remainder, today):\n    {half}\n"
                )
                editor.complete(new, (1, 4 + len(half)))
                time.sleep(0.3)  # the engine may be at it still when a busy machine's deadline has answered
                if status(env)["drafted"].get("workspace", 0) > 0:
                    break

            user = (root / "user.py").as_uri()
            above = "from ledger import settle\n\n"
            editor.open(user, above + "settle(\n")
            end = time.monotonic() + 60
            shown: list[str] = []
            for number in itertools.count(2):  # typed on each time: nothing is recalled
                assert time.monotonic() < end, shown
                editor.change(user, number, f"{above}settle(a{number}\n")
                place = {"line": 2, "character": len(f"settle(a{number}")}
                answer = editor.call("copilotd/explain", {"uri": user, "position": place})
                shown = [part["name"] for part in answer["explanation"]["parts"]]
                if "snippet ledger.py" in shown:
                    break
                time.sleep(0.3)  # a typist's pause: the prompt is laid anew in idle time

            secret = (root / ".env").as_uri()
            editor.open(secret, "PAY_KEY=canary-env\nPAY_\n")
            assert not editor.complete(secret, (1, 4))
            seen = status(env)
            assert seen["requests"]["empty"]["secret"] == 1
            assert "canary" not in Path(seen["log_path"]).read_text()

            (root / "later.py").write_text("x = 1\n")
            wait_for(env, lambda seen: files(seen) == 3)
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)


def test_a_killed_index_process_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    env = own_folder_environment(tmp_path / "home") | {"COPILOTD_MODEL": "embedded"}
    pid = 0
    try:
        with LspProcess(env) as editor:
            editor.initialize(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}])
            pid = wait_for(env, lambda seen: files(seen) == 1)["pid"]
            os.kill(index_process_of(pid), signal.SIGKILL)
            (root / "b.py").write_text("y = 2\n")
            wait_for(env, lambda seen: files(seen) == 2)
            assert status(env)["pid"] == pid
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)


def test_an_index_process_that_hangs_keeps_no_daemon(tmp_path: Path) -> None:
    """Stopped by somebody, or in a network folder that is gone: a request to end does not reach it."""
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    env = own_folder_environment(tmp_path / "home") | {"COPILOTD_MODEL": "embedded"}
    with LspProcess(env) as editor:
        editor.initialize(workspaceFolders=[{"uri": root.as_uri(), "name": "work"}])
        pid = wait_for(env, lambda seen: files(seen) == 1)["pid"]
        hanging = index_process_of(pid)
        os.kill(hanging, signal.SIGSTOP)
        try:
            subprocess.run([sys.executable, "-P", "-m", "copilotd", "stop"], env=env, check=True, timeout=60)
            end = time.monotonic() + 60
            while Path(f"/proc/{pid}").exists() or Path(f"/proc/{hanging}").exists():
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            for number in (hanging, pid):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def index_process_of(pid: int) -> int:
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for number in child.read_text().split():
            if b"copilotd.context.service" in Path(f"/proc/{number}/cmdline").read_bytes():
                return int(number)
    raise AssertionError("no index process")
