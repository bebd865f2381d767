"""What the log says of a load."""

from __future__ import annotations

import logging

import pytest

from copilotd.backends.local import LocalBackend
from copilotd.completion.completer import Completer
from copilotd.config import DaemonSettings, Settings
from copilotd.daemon.loading import Models
from copilotd.engine.native.build import CannotBuild
from copilotd.models import quantise
from tests.support.kernels import holds_here


def load(**keys: str) -> Models:
    models = Models(LocalBackend.load, Completer, lambda state: None)
    daemon = DaemonSettings(device="cpu", model="embedded", quantisation="int8", threads=1, **keys)  # type: ignore[arg-type]
    models.load(Settings(daemon=daemon), models.ticket())
    return models


@pytest.mark.parametrize(
    "why", ["there is no C compiler: install gcc or clang", "/usr/bin/cc fails: error: sorry"]
)
def test_why_torchs_kernels_run_a_pair_is_logged_once(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exact() -> bool:
        raise CannotBuild(why)

    monkeypatch.setattr(quantise, "exact", exact)
    with caplog.at_level(logging.INFO, "copilotd"):
        found = load().describe()
    assert found.draft
    assert (found.kernels, found.why_torch) == ("torch", why)
    assert [record.getMessage() for record in caplog.records if why in record.getMessage()] == [
        f"torch's kernels: {why}"
    ]


def test_of_compiled_kernels_nothing_need_be_said(caplog: pytest.LogCaptureFixture) -> None:
    holds_here("compiled")
    with caplog.at_level(logging.INFO, "copilotd"):
        found = load().describe()
    assert (found.kernels, found.why_torch) == ("compiled", "")
    assert "kernels" not in caplog.text
