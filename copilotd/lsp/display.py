"""What the person sees of us beside the completions: status, messages, progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types

from copilotd import wire
from copilotd.lsp.progress import LoadingProgress

if TYPE_CHECKING:
    from copilotd.lsp.server import Front

STATUS = "copilotd/didChangeStatus"

_LEVELS = {
    "error": types.MessageType.Error,
    "warning": types.MessageType.Warning,
    "info": types.MessageType.Info,
}


class Display:
    """Keeps everything until the editor listens; says each text once and a status when it changes."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._progress = LoadingProgress(front)
        self._listening = False
        self._state = wire.State("loading")
        self._reason = ""
        self._shown: dict[str, Any] = {}
        self._said: set[str] = set()
        self._unsaid: list[wire.Notice] = []

    def begin(self) -> None:
        """The editor is ready for notifications and requests of ours."""
        self._listening = True
        unsaid, self._unsaid = self._unsaid, []
        for notice in unsaid:
            self._show(notice)
        self.state(self._state)

    def say(self, notice: wire.Notice) -> None:
        if notice.text in self._said:
            return
        self._said.add(notice.text)
        if self._listening:
            self._show(notice)
        else:
            self._unsaid.append(notice)

    def state(self, state: wire.State) -> None:
        """How it stands with the daemon and its models."""
        self._state = state
        self.update()
        if self._listening and self._front.supports("window", "workDoneProgress"):
            self._progress.update(state)

    def reason(self, reason: str) -> None:
        """Why the last completion was empty, "" if it was not."""
        self._reason = reason
        self.update()

    def update(self) -> None:
        status = {
            "state": self._state.state,
            "message": self._state.message,
            "progress": self._state.progress,
            "model": self._state.model,
            "device": self._state.device,
            "paused": self._front.session.paused,
            "reason": self._reason,
        }
        if self._listening and status != self._shown:
            self._shown = status
            self._front.protocol.notify(STATUS, status)

    def _show(self, notice: wire.Notice) -> None:
        if notice.level == "log":
            self._front.window_log_message(types.LogMessageParams(types.MessageType.Warning, notice.text))
            return
        self._front.window_show_message(types.ShowMessageParams(_LEVELS[notice.level], notice.text))
