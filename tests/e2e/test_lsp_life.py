"""How a window's session begins and ends (cases H15, H19, H20)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_daemon import Asked, insert
from tests.support.lsp_driver import LspProcess, frame
from tests.support.window import Window

URI = "file:///w/a.py"


def silent(asked: Asked) -> None:
    """A model inside one long generation."""


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    with Window(tmp_path) as window:
        yield window


# ---- beginning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"processId": None, "workspaceFolders": None, "initializationOptions": None},
        {"processId": None, "workspaceFolders": []},
        {
            "processId": None,
            "rootUri": "file:///w",
            "capabilities": {"general": {"positionEncodings": ["utf-16"]}},
            "initializationOptions": {"unknownKey": [1, 2]},
            "workspaceFolders": [],
        },
        {"capabilities": None, "clientInfo": None, "trace": "verbose", "locale": "en"},
        {"capabilities": {"textDocument": None, "window": 7, "general": {"positionEncodings": None}}},
        {"capabilities": {"workspace": {"symbol": {"symbolKind": {"valueSet": [1, 99]}}}}},
    ],
)
def test_initialize_takes_nulls_and_announces_inline_completion(window: Window, params: dict) -> None:
    capabilities = window.editor(start=False).initialize(**params)["capabilities"]
    assert capabilities["inlineCompletionProvider"] == {}
    assert capabilities["textDocumentSync"]["change"] == 2
    assert capabilities["textDocumentSync"]["openClose"] is True
    assert set(capabilities["executeCommandProvider"]["commands"]) == {
        "copilotd.didAccept",
        "copilotd.didPartiallyAccept",
        "copilotd.pause",
        "copilotd.resume",
        "copilotd.fetch",
    }


def test_a_request_before_initialize_is_refused_and_costs_nothing(window: Window) -> None:
    editor = window.editor(start=False)
    assert editor.error("textDocument/inlineCompletion", {"textDocument": {"uri": URI}}) == -32002
    editor.open(URI, "dropped")
    editor.initialize()
    assert editor.error("initialize", {"capabilities": {}}) == -32600
    assert editor.complete(URI, (0, 0)) == []


def test_messages_that_are_none(window: Window) -> None:
    editor = window.editor()
    for broken, code in [
        (b"{", -32700),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"shutdown"}', -32600),
        (b"[" * 100_000, -32700),
    ]:
        before = len(editor.responses(None))  # type: ignore[arg-type]  # an error that belongs to no request
        editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(broken), broken))
        error = editor.wait(lambda n=before: editor.responses(None)[n:])[0]["error"]  # type: ignore[arg-type]
        assert error["code"] == code
    assert editor.error("textDocument/inlineCompletion", {"textDocument": 3}) == -32602
    assert editor.error("workspace/symbol", {}) == -32601
    editor.notify("textDocument/didChange", {"nothing": "of use"})
    editor.notify("$/unknown", [1])
    editor.notify("workspace/executeCommand")
    assert editor.call("workspace/executeCommand", {"command": "unknown", "arguments": None}) is None
    assert (
        editor.call("workspace/executeCommand", {"command": "copilotd.didAccept", "arguments": [7]}) is None
    )
    editor.open(URI, "still here")
    assert window.seen(editor, URI, (0, 5)) == ("still", " here")
    assert not editor.notifications("window/showMessage")


ODD = [None, [], "x", 7, True, {}, {"textDocument": None}, {"textDocument": {"uri": 5}}, {"settings": [[]]}]
METHODS = [
    "textDocument/didOpen",
    "textDocument/didChange",
    "textDocument/didClose",
    "textDocument/didSave",
    "textDocument/inlineCompletion",
    "workspace/executeCommand",
    "workspace/didChangeConfiguration",
    "workspace/didChangeWorkspaceFolders",
    "copilotd/explain",
    "$/cancelRequest",
    "$/setTrace",
    "window/workDoneProgress/cancel",
    "textDocument/hover",
    "initialized",
]


def test_odd_parameters_of_every_method(window: Window) -> None:
    """Each request gets one response, no notification gets one, and the session goes on."""
    editor = window.editor()
    numbers = []
    for method in METHODS:
        for params in ODD:
            editor.notify(method, params)
            numbers.append(editor.request(method, params))
    for number in numbers:
        editor.response(number)
    editor.open(URI, "still here")
    assert window.seen(editor, URI, (0, 5)) == ("still", " here")
    assert all(len(editor.responses(number)) == 1 for number in numbers)
    assert not [message for message in editor.received if "id" in message and message["id"] is None]
    assert not editor.notifications("window/showMessage")


def test_headers_as_other_clients_write_them(window: Window) -> None:
    editor = window.editor()
    body = frame({"jsonrpc": "2.0", "id": "x", "method": "shutdown"}).split(b"\r\n\r\n")[1]
    head = b"content-length:%d\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n"
    editor.send_bytes(head % len(body) + body)
    assert editor.response("x")["result"] is None


def test_the_front_loads_no_model_library(window: Window, tmp_path: Path) -> None:
    """sys.modules of the real front once it has answered, printed from inside by an exit hook."""
    probe = textwrap.dedent("""
        import atexit, sys
        atexit.register(lambda: print("LOADED", *sys.modules, file=sys.stderr))
        from copilotd.cli import main
        sys.exit(main(["--stdio"]))
    """)
    editor = window.editor(command=(sys.executable, "-P", "-c", probe))
    editor.open(URI, "x")
    editor.complete(URI, (0, 1))
    editor.shutdown()
    assert editor.exit_code() == 0
    editor._threads[1].join(10)
    loaded = editor.stderr.decode().split("LOADED ")[1].split()
    assert "copilotd.lsp.server" in loaded
    assert not {"torch", "transformers", "numpy", "tokenizers", "rich"} & set(loaded)


def test_a_window_costs_less_than_60_megabytes(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "x = 1\n" * 350_000)
    editor.complete(URI, (100, 2))
    rollup = Path(f"/proc/{editor.process.pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    assert pss < 60_000, f"{pss} kB"


# ---- stdout ----------------------------------------------------------------------------------------------


def test_whatever_prints_stdout_carries_frames_only(window: Window) -> None:
    """Noise from inside the front, of every kind, while it answers: the driver refuses any byte of it."""
    noisy = textwrap.dedent("""
        import sys
        import copilotd.lsp.methods.did_open as did_open

        def noise(ls, params, handle=did_open.handle):
            import logging, os, subprocess, warnings
            print("loading 50%", end="\\r", flush=True)
            os.write(1, b"native log line\\n")
            subprocess.run(["echo", "child says hi"])
            warnings.warn("deprecated")
            logging.basicConfig(stream=sys.stdout, force=True)
            logging.getLogger("noise").warning("logged")
            sys.__stdout__.write("dunder"); sys.__stdout__.flush()
            handle(ls, params)

        did_open.handle = noise
        from copilotd.cli import main
        sys.exit(main(["--stdio"]))
    """)
    window.daemon.answer = insert("x")
    editor = window.editor(command=(sys.executable, "-P", "-c", noisy))
    editor.open(URI, "a")
    assert editor.complete(URI, (0, 1))
    editor.shutdown()
    assert editor.exit_code() == 0
    editor._threads[0].join(10)
    editor._threads[1].join(10)
    assert not editor.violation
    for said in (b"loading 50%", b"native log line", b"child says hi", b"deprecated", b"logged", b"dunder"):
        assert said in editor.stderr


def test_stdout_and_stderr_on_one_pipe_stay_apart(window: Window) -> None:
    command = 'exec "$0" -P -c "$1" 2>&1'
    noisy = "import sys; from copilotd.cli import stdio; import os; s = stdio.take_standard_streams(); os.write(2, b'x'); os.write(1, b'y'); os.write(s[1], b'frames')"
    done = subprocess.run(["sh", "-c", command, sys.executable, noisy], capture_output=True, check=True)
    assert done.stdout == b"frames"


# ---- ending ----------------------------------------------------------------------------------------------


def children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_shutdown_and_exit_while_generating(window: Window) -> None:
    window.daemon.answer = silent
    editor = window.editor()
    editor.open(URI, "a")
    pending = editor.ask(URI, (0, 1))
    window.daemon.wait(lambda: window.daemon.asked)
    asked = time.monotonic()
    assert editor.call("shutdown") is None
    assert time.monotonic() - asked < 1
    assert editor.response(pending)["error"]["code"] == -32800
    assert children(editor.process.pid) == []
    left = time.monotonic()
    editor.notify("exit")
    assert editor.exit_code() == 0
    assert time.monotonic() - left < 2
    assert len(editor.responses(pending)) == 1
    window.daemon.wait(lambda: not window.daemon._writers)


def test_after_shutdown_requests_are_refused_at_once(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "a")
    editor.call("shutdown")
    refused = editor.response(editor.ask(URI, (0, 1)), seconds=5)
    assert refused["error"]["code"] == -32600
    editor.notify("exit")
    assert editor.exit_code() == 0


def test_stdin_closed_while_generating(window: Window) -> None:
    window.daemon.answer = silent
    editor = window.editor()
    editor.open(URI, "a")
    editor.ask(URI, (0, 1))
    window.daemon.wait(lambda: window.daemon.asked)
    closed = time.monotonic()
    editor.close_stdin()
    assert editor.exit_code() == 1
    assert time.monotonic() - closed < 2
    window.daemon.wait(lambda: not window.daemon._writers)


def test_exit_without_shutdown(window: Window) -> None:
    editor = window.editor()
    editor.notify("exit")
    assert editor.exit_code() == 1


@pytest.mark.parametrize("reaped", [True, False])
def test_the_editor_is_killed_while_its_pipe_stays_open(window: Window, reaped: bool) -> None:
    helper = subprocess.Popen(["sleep", "600"])
    try:
        editor = window.editor(initialize={"processId": helper.pid})
        killed = time.monotonic()
        helper.kill()
        if reaped:
            helper.wait()
        assert editor.exit_code() == 1
        assert time.monotonic() - killed < 2
    finally:
        helper.kill()
        helper.wait()


def test_the_parent_dies_while_the_pipe_stays_open(window: Window) -> None:
    """Without a processId the parent is watched."""
    launcher = textwrap.dedent("""
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-P", "-m", "copilotd", "--stdio"])
        time.sleep(600)
    """)
    editor = window.editor(command=(sys.executable, "-c", launcher), initialize={"processId": None})
    [front] = map(int, children(editor.process.pid))
    descriptor = os.pidfd_open(front)
    try:
        os.kill(editor.process.pid, signal.SIGKILL)
        assert wait_readable(descriptor, 10)
    finally:
        os.close(descriptor)


def wait_readable(descriptor: int, seconds: float) -> bool:
    import select

    return bool(select.select([descriptor], [], [], seconds)[0])


def test_a_process_id_of_another_namespace_is_passed_over(window: Window) -> None:
    editor = window.editor(initialize={"processId": 2**22 + 7})
    editor.open(URI, "a")
    assert editor.complete(URI, (0, 1)) == []


def test_an_editor_that_reads_no_more(tmp_path: Path) -> None:
    """Its end of stdout is closed while stdin stays open: the front leaves at its next word."""
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "copilotd", "--stdio"]
    front = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    os.close(read)
    assert front.stdin
    front.stdin.write(frame({"jsonrpc": "2.0", "id": 1, "method": "shutdown"}))
    front.stdin.flush()
    assert front.wait(30) == 1
    front.stdin.close()


@pytest.mark.parametrize("stdin", [os.devnull, __file__])
def test_input_that_is_no_pipe(stdin: str) -> None:
    """Nothing, or a file that holds no frames: the front ends and says nothing on stdout."""
    with Path(stdin).open("rb") as file:
        command = [sys.executable, "-P", "-m", "copilotd", "--stdio"]
        done = subprocess.run(command, stdin=file, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_interrupt_is_silent(window: Window) -> None:
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
    try:
        editor = window.editor()
    finally:
        signal.signal(signal.SIGINT, heeded)
    editor.process.send_signal(signal.SIGINT)
    assert editor.exit_code() == 130
    editor._threads[1].join(10)
    assert editor.stderr == b""


def test_the_front_uses_no_time_while_nothing_happens(window: Window) -> None:
    editor = window.editor()
    editor.open(URI, "a")
    editor.complete(URI, (0, 1))
    before = cpu_seconds(editor)
    time.sleep(1.5)
    assert cpu_seconds(editor) - before < 0.1


def cpu_seconds(editor: LspProcess) -> float:
    fields = Path(f"/proc/{editor.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
