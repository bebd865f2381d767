"""What is counted for `copilotd metrics`, and that no text gets into it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import msgspec
from prometheus_client import generate_latest

from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.completion.explanation import Explanation
from copilotd.daemon.connection import is_rest
from copilotd.daemon.exposition import registry
from copilotd.daemon.launch import LaunchError
from copilotd.daemon.metrics import Counting, Report
from copilotd.daemon.status import Status
from copilotd.daemon.taken import KEPT_AFTER_S, NEAR, Taken, Takings
from copilotd.engine.generation import Counters

DASHBOARD = Path(__file__).resolve().parents[2] / "scripts" / "grafana" / "copilotd.json"


def completion(*texts: str, reason: str = "", model: bool = True, **counters: object) -> Completion:
    explanation = Explanation()
    if model:
        explanation.add("prompt", "9 tokens", 3.0)
        explanation.add("generate", "4 tokens, then stop", 40.0)
        explanation.counters = Counters(**counters)  # type: ignore[arg-type]
    return Completion(
        [Suggestion(0, 0, text) for text in texts], reason, explanation, typed_through=not model
    )


def exposed(counting: Counting, **status: object) -> dict[str, float]:
    """Every line of the exposition."""
    known = {"pid": 1, "version": "1", "uptime_s": 1.0, "state": "ready"}
    report = Report(counting.metrics(), msgspec.convert(known | status, Status))
    report = msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report)  # as it travels
    text = generate_latest(registry(lambda: report)).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_request_by_its_stages() -> None:
    counting = Counting()
    written = completion("text", prefill_ms=20.0, decode_ms=15.0, target_steps=2)
    counting.answered("python", written, waited_ms=2.0, answer_ms=45.0, new=True)
    counting.answered("python", completion("xt", model=False), waited_ms=0.0, answer_ms=0.4, new=False)
    found = exposed(counting)
    sums = {
        stage: round(found[f'copilotd_stage_seconds_sum{{stage="{stage}"}}'] * 1e3, 3)
        for stage in ("waiting", "prompt", "prefill", "decode", "text", "answer", "memory")
    }
    assert sums == {
        "waiting": 2.0,
        "prompt": 3.0,
        "prefill": 20.0,
        "decode": 15.0,
        "text": 5.0,
        "answer": 45.0,
        "memory": 0.4,
    }
    answers = 'copilotd_stage_seconds_bucket{le="%s",stage="answer"}'
    assert [found[answers % bound] for bound in ("0.025", "0.05", "0.1", "+Inf")] == [0, 1, 1, 1]
    assert found['copilotd_answered_total{language="python"}'] == 2
    assert found['copilotd_shown_total{language="python"}'] == 1
    assert found['copilotd_typed_through_total{language="python"}'] == 1


def test_drafts_by_source_language_and_model() -> None:
    counting = Counting()
    numbers = {"drafted": {"lookup": 9, "draft": 4}, "accepted": {"lookup": 6}, "reached": {"lookup": 7}}
    for language in ("python", "python", "sql"):
        counting.worked(language, "Qwen2.5-Coder-1.5B", completion("x", generated_tokens=5, **numbers))
    found = exposed(counting)
    labels = '{language="python",model="Qwen2.5-Coder-1.5B",source="lookup"}'
    assert found[f"copilotd_draft_tokens_proposed_total{labels}"] == 18
    assert found[f"copilotd_draft_tokens_accepted_total{labels}"] == 12
    assert found[f"copilotd_draft_tokens_reached_total{labels}"] == 14
    assert found['copilotd_generated_tokens_total{language="sql",model="Qwen2.5-Coder-1.5B"}'] == 5


def test_labels_are_words_of_ours_whatever_an_editor_calls_its_language() -> None:
    counting = Counting()
    for language in ("password = 'canary'", "canary", "", "python"):
        counting.empty(language, "nothing")
        counting.empty(language, "canary in /home/me/file.py")
        counting.answered(language, completion("canary"), 0.0, 1.0, new=True)
        counting.worked(language, "m", completion("canary", drafted={"Canary\n": 1}))
        counting.requests(language).cancelled += 1
    found = exposed(counting)
    assert "anary" not in "".join(found)
    assert found['copilotd_empty_total{language="other",reason="other"}'] == 3
    assert found['copilotd_cancelled_total{language="python"}'] == 1


def test_a_daemon_that_is_gone_is_down() -> None:
    def ask() -> Report:
        raise LaunchError("gone")

    assert generate_latest(registry(ask)).decode().splitlines()[-1] == "copilotd_up 0.0"


def test_the_dashboard_asks_for_what_there_is() -> None:
    counting = Counting()
    counting.answered("python", completion("x"), 0.0, 1.0, new=True)
    counting.worked("python", "m", completion("x", drafted={"lookup": 1}))
    counting.empty("python", "nothing")
    there = {name.partition("{")[0] for name in exposed(counting, pid=os.getpid())}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    wanted = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"copilotd_\w+", target["expr"])
    }
    assert len(wanted) > 15
    assert wanted <= there


# ---- what became of them -----------------------------------------------------------------------------------


def test_what_typing_leaves_of_a_text_is_no_new_one() -> None:
    before = Suggestion(3, 3, "one\ntwo")
    ask = Ask(client="c", uri="u", language="python", path="a", text="abcone\r\nt", offset=9)
    assert is_rest(before, ask, Suggestion(9, 9, "wo"))
    assert not is_rest(before, ask, Suggestion(9, 9, "o"))
    assert not is_rest(before, ask, Suggestion(9, 9, "wo and more"))
    assert not is_rest(Suggestion(4, 4, "one\ntwo"), ask, Suggestion(9, 9, "wo"))


def taken(text: str, start: int = 0, at: float = 0.0, uri: str = "u") -> Taken:
    return Taken("c", uri, "python", start, text, at)


def judged(takings: Takings, now: float, document: str | None) -> list[bool | None]:
    return [kept for _, kept in takings.due(now, lambda client, uri: document)]


def test_a_text_is_kept_if_it_is_there_half_a_minute_later() -> None:
    takings = Takings()
    takings.add(taken("return a + b"))
    assert judged(takings, KEPT_AFTER_S - 1, "") == []
    assert judged(takings, KEPT_AFTER_S, "def f():\r\n    return a +\r\n        b\r\n") == [True]
    assert judged(takings, KEPT_AFTER_S + 1, "") == []


def test_a_text_that_was_changed_or_stands_elsewhere_is_not_kept() -> None:
    takings = Takings()
    for start in (0, 3 * NEAR):
        takings.add(taken("return a + b", start))
    assert judged(takings, KEPT_AFTER_S, "return a + c" + " " * 4 * NEAR) == [False, False]
    takings.add(taken("return a + b", 3 * NEAR))
    assert judged(takings, KEPT_AFTER_S, "return a + b" + "x" * 4 * NEAR) == [False]


def test_a_document_is_judged_when_it_closes_and_white_space_is_not_judged() -> None:
    takings = Takings()
    takings.add(taken("a"))
    takings.add(taken("b", uri="v"))
    takings.add(taken(" \n"))
    assert [kept for _, kept in takings.closing("c", "u", lambda *_: "a")] == [True]
    assert [kept for _, kept in takings.closing("c", None, lambda *_: None)] == [None]
    assert judged(takings, 1e9, "") == []
