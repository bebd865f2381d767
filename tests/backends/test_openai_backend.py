"""The backend against a real HTTP server that speaks the protocol, well and badly."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from copilotd.backends.base import BackendError, Unavailable
from copilotd.backends.openai import backend as module
from copilotd.backends.openai.answer import SILENCE_S
from copilotd.backends.openai.backend import OpenAIBackend
from copilotd.config import DaemonSettings, Settings
from copilotd.engine.generation import Generation, GenerationRequest, Sampling
from copilotd.models.catalogue import embedded_folder
from tests.support.openai_server import LOGPROB, OpenAIServer

TOKENIZER = embedded_folder("target")
SECRET = "sk-very-secret"


class Begin:
    """A constraint as completion/ sends it: what the text must begin with. No backend here may ask for a mask."""

    def __init__(self, needed: bytes) -> None:
        self.needed = needed

    def start(self) -> int:
        return 0

    def next(self, state: int, token: int) -> int:
        raise AssertionError

    def mask(self, state: int) -> Any:
        raise AssertionError


@contextmanager
def backend(server: OpenAIServer, *, ids: bool = False, **settings: Any) -> Iterator[OpenAIBackend]:
    tokenizer = str(TOKENIZER) if ids else ""
    made = OpenAIBackend.load(
        Settings(
            daemon=DaemonSettings(
                backend="openai", **{"endpoint": server.url, "endpoint_tokenizer": tokenizer} | settings
            )
        ),
        lambda what, done, total: None,
    )
    try:
        yield made
    finally:
        made.close()


def request(of: OpenAIBackend, text: str = "def f(x):\n    ", **fields: Any) -> GenerationRequest:
    fim = of.vocabulary.fim
    assert fim is not None
    prompt = [fim.prefix, *of.vocabulary.encode(text), fim.suffix, *of.vocabulary.encode("\n"), fim.middle]
    return GenerationRequest(
        **{"prompt": prompt, "max_new_tokens": 64, "stop_ids": of.vocabulary.control, "slot": (("c", "u"), 0)}
        | fields
    )


def written(of: OpenAIBackend, generation: Generation) -> str:
    return b"".join(map(of.vocabulary.token_bytes, generation.ids)).decode()


def never() -> bool:
    return False


def go_on(ids: Sequence[int], logprobs: Sequence[float] = ()) -> bool:
    return False


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("answer", ["good", "split", "whole"])
def test_what_the_server_writes_comes_out(ids: bool, answer: str) -> None:
    script = "return 'naïve — 漢字 😀'\u2028\x85 # done\n"
    with (
        OpenAIServer(script, plan=[answer], tokenizer=TOKENIZER) as server,
        backend(server, ids=ids) as of,
    ):
        emitted: list[int] = []
        generation = of.generate(request(of), never, lambda ids, _=(): emitted.extend(ids) or False)
        assert written(of, generation) == script
        assert generation.finish == "stop"
        assert emitted == generation.ids
        told = ids and answer != "whole"
        assert generation.logprobs == [LOGPROB if told else 0.0] * len(generation.ids)


def test_prompts_go_as_ids_where_the_tokenizer_is_at_hand() -> None:
    with OpenAIServer("x", tokenizer=TOKENIZER) as server, backend(server, ids=True) as of:
        asked = request(of)
        of.generate(asked, never, go_on)
        body = server.asked[0].body
        assert body["prompt"] == list(asked.prompt)
        assert body["stop_token_ids"] == sorted(of.vocabulary.control)
        assert body["temperature"] == 0.0
        assert body["max_tokens"] == 64
        assert "Authorization" not in server.asked[0].headers


def test_a_server_that_takes_no_ids_gets_text() -> None:
    with (
        OpenAIServer("x = 1", plan=["unids"], tokenizer=TOKENIZER) as server,
        backend(server, ids=True) as of,
    ):
        for _ in range(2):
            assert written(of, of.generate(request(of), never, go_on)) == "x = 1"
        assert [type(asked.body["prompt"]) for asked in server.asked] == [list, str, str]
        assert "return_token_ids" not in server.asked[1].body
        assert server.prompts()[1] == "<|fim_prefix|>def f(x):\n    <|fim_suffix|>\n<|fim_middle|>"


def test_ids_of_another_tokenizer_are_never_sent() -> None:
    with (
        OpenAIServer("x", tokenizer=TOKENIZER, own_ids=lambda ids: [token + 1 for token in ids]) as server,
        backend(server, ids=True) as of,
    ):
        of.generate(request(of), never, go_on)
        assert isinstance(server.asked[0].body["prompt"], str)
        assert "endpoint_tokenizer" in " ".join(of.describe().remarks)


def test_nor_where_the_server_was_away_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEARN_S", 0.0)
    with (
        OpenAIServer("x", tokenizer=TOKENIZER, own_ids=lambda ids: [token + 1 for token in ids]) as server,
        backend(server, ids=True, endpoint_model="served") as of,
    ):
        assert not of.describe().remarks
        assert written(of, of.generate(request(of), never, go_on)) == "x"
        assert isinstance(server.asked[0].body["prompt"], str)


def test_markers_in_the_users_text_stay_text() -> None:
    text = "a <|fim_middle|> b </s> c <|im_start|>\n"
    with (
        OpenAIServer("x", tokenizer=TOKENIZER) as server,
        backend(server) as of,
        backend(server, ids=True) as with_ids,
    ):
        of.generate(request(of, text), never, go_on)
        with_ids.generate(request(with_ids, text), never, go_on)
        sent, ids = (asked.body["prompt"] for asked in server.asked)
        assert sent.count("<|fim_middle|>") == 1
        assert sent.endswith("<|fim_middle|>")
        assert "</s>" not in sent
        assert "<|im_start|>" not in sent
        assert len([token for token in ids if token in of.vocabulary.control]) == 3


@pytest.mark.parametrize("ids", [False, True])
def test_a_marker_ends_the_answer_and_is_no_part_of_it(ids: bool) -> None:
    with (
        OpenAIServer("done <|file_sep|>other.py\n", tokenizer=None if not ids else TOKENIZER) as server,
        backend(server, ids=ids) as of,
    ):
        generation = of.generate(request(of), never, go_on)
        # a server with a tokenizer writes these characters as plain ones here, as user text
        assert written(of, generation).startswith("done ")
        assert ids or (written(of, generation), generation.finish) == ("done ", "stop")


def test_half_a_marker_at_the_end_is_text() -> None:
    with OpenAIServer("a <|fi") as server, backend(server) as of:
        assert written(of, of.generate(request(of), never, go_on)) == "a <|fi"


# ---- what must be written again ----------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [False, True])
def test_an_answer_that_begins_as_it_must_is_taken_as_it_is(ids: bool) -> None:
    with OpenAIServer("return x\n", tokenizer=TOKENIZER) as server, backend(server, ids=ids) as of:
        generation = of.generate(request(of, constraint=Begin(b"ret")), never, go_on)
        assert written(of, generation) == "return x\n"
        assert len(server.asked) == 1


def after(word: str, answer: str, otherwise: str) -> Callable[[str], str]:
    return lambda prompt: answer if prompt.endswith(word) else otherwise


def test_the_server_masks_where_it_can() -> None:
    needed = "y = (a[0] + *)\n\t"
    with (
        OpenAIServer(after(needed, "more", "return"), tokenizer=TOKENIZER) as server,
        backend(server, ids=True) as of,
    ):
        generation = of.generate(request(of, constraint=Begin(needed.encode())), never, go_on)
        assert written(of, generation) == f"{needed}more"
        assert (generation.logprobs[0], generation.logprobs[-1]) == (
            0.0,
            LOGPROB,
        )  # what is typed is no guess
        assert len(server.asked) == 1
        of.generate(request(of), never, go_on)
        assert "structured_outputs" not in server.asked[1].body


@pytest.mark.parametrize("server_is", ["text only", "without masks", "refusing masks"])
def test_one_that_goes_another_way_is_put_on_the_way(server_is: str) -> None:
    with (
        OpenAIServer(
            after("y", "ield x\n", "return x\n"),
            tokenizer=TOKENIZER,
            masks=server_is != "without masks",
            plan=["unmasked" if server_is == "refusing masks" else "good"],
        ) as server,
        backend(server, ids=server_is != "text only") as of,
    ):
        generation = of.generate(request(of, constraint=Begin(b"y")), never, go_on)
        assert written(of, generation) == "yield x\n"
        asked = len(server.asked)
        assert server.prompts()[-1].endswith("y")
        assert isinstance(server.asked[-1].body["prompt"], str) is (server_is == "text only")
        # how this server is to be spoken to is known now, and what it says to this very prompt
        known = server_is != "without masks"
        assert written(of, of.generate(request(of, constraint=Begin(b"yi")), never, go_on)).startswith("yi")
        assert len(server.asked) == asked + (1 if known else 2)
        assert written(of, of.generate(request(of, constraint=Begin(b"yie")), never, go_on)).startswith("yie")
        assert len(server.asked) == asked + (2 if known else 3)
        assert "structured_outputs" not in server.asked[-1].body


def test_an_answer_that_ends_before_it_began_as_it_must() -> None:
    with (
        OpenAIServer(lambda prompt: "turn" if prompt.endswith("re") else "") as server,
        backend(server) as of,
    ):
        generation = of.generate(request(of, constraint=Begin(b"re")), never, go_on)
        assert written(of, generation) == "return"


# ---- ending ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["slow", "stall", "mute", "endless"])
def test_a_cancelled_request_closes_its_connection(answer: str) -> None:
    with OpenAIServer("abcdefghij" * 5, plan=[answer]) as server, backend(server) as of:
        ended = threading.Event()
        threading.Timer(0.3, ended.set).start()
        generation = of.generate(request(of), ended.is_set, go_on)
        stopped = time.monotonic()
        assert generation.finish == "cancelled"
        assert server.wait(lambda: server.asked[0].hung_up) - stopped < 5.0
        assert len(generation.ids) < 50


def test_enough_is_enough() -> None:
    with OpenAIServer("abcdefghij" * 5, plan=["slow"]) as server, backend(server) as of:
        generation = of.generate(request(of), never, lambda ids, _=(): True)
        assert generation.finish == "halted"
        assert written(of, generation) == "a"
        server.wait(lambda: server.asked[0].hung_up)


def test_no_more_than_the_budget() -> None:
    with OpenAIServer("abcdefghij" * 50) as server, backend(server) as of:
        generation = of.generate(request(of, max_new_tokens=3), never, go_on)
        assert (len(generation.ids), generation.finish) == (3, "length")
        assert server.asked[0].body["max_tokens"] == 3
        assert of.generate(request(of, max_new_tokens=0), never, go_on).finish == "length"
        assert len(server.asked) == 1


def test_connections_are_kept() -> None:
    with OpenAIServer("x") as server, backend(server) as of:
        for _ in range(5):
            of.generate(request(of), never, go_on)
            time.sleep(0.1)  # a hand is slower still; the end of the last answer has been read by then
        assert len({asked.connection for asked in server.asked}) == 1


# ---- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        "reset",
        "halfway",
        "short",
        "html",
        "nothing",
        "garbage",
        "429 Retry-After: 1",
        "500",
        "503",
        "401",
        "404",
        "400",
        "301",
    ],
)
def test_every_failure_is_said_in_words_of_ours_and_gets_over(answer: str) -> None:
    with OpenAIServer("good answer", plan=[answer, "good"], key=SECRET) as server:
        file_key = {"api_key_file": ""}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COPILOTD_API_KEY", SECRET)
            with backend(server, **file_key) as of:
                began = time.monotonic()
                with pytest.raises(BackendError) as failed:
                    of.generate(request(of, "my own text"), never, go_on)
                assert time.monotonic() - began < SILENCE_S  # it was not waited for what cannot come
                assert isinstance(failed.value, Unavailable) or "127.0.0.1" in str(failed.value)
                for secret in (SECRET, "my own", "<html>", "{"):
                    assert secret not in str(failed.value)
                with pytest.raises(BackendError):  # held back: nothing is asked
                    of.generate(request(of), never, go_on)
                assert len(server.asked) == 1
                of._outage._until = 0.0  # as if the time had passed
                assert written(of, of.generate(request(of), never, go_on)) == "good answer"
                assert server.asked[0].headers["Authorization"] == f"Bearer {SECRET}"


def test_a_server_that_says_nothing_in_time_is_left_alone() -> None:
    with OpenAIServer("x", plan=["stall"]) as server, backend(server) as of:
        deadline = time.monotonic() + 1.7
        with pytest.raises(Unavailable):
            of.generate(request(of), lambda: time.monotonic() > deadline, go_on)
        server.wait(lambda: server.asked[0].hung_up)
        with pytest.raises(Unavailable):
            of.generate(request(of), never, go_on)
        assert len(server.asked) == 1


def test_a_server_that_is_not_there_may_come_later() -> None:
    with OpenAIServer("x") as gone:
        pass
    with backend(gone, endpoint_model="m") as of, pytest.raises(Unavailable):
        of.generate(request(of), never, go_on)


def test_the_server_names_its_model_and_its_limit() -> None:
    with OpenAIServer("x", model="qwen", max_model_len=512) as server, backend(server) as of:
        assert of.context_tokens == 512
        assert "qwen" in of.name
        of.generate(request(of), never, go_on)
        assert server.asked[0].body["model"] == "qwen"
        with backend(server, endpoint_model="other") as wrong:
            assert "endpoint_model" in " ".join(wrong.describe().remarks)


def test_loopback_is_reached_in_spite_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with OpenAIServer("x") as server, backend(server) as of:
        assert written(of, of.generate(request(of), never, go_on)) == "x"


def test_a_proxy_that_is_no_address_is_said_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://proxy.example")
    threads = threading.active_count()
    with pytest.raises(BackendError, match="HTTPS_PROXY"):
        OpenAIBackend(DaemonSettings(backend="openai", endpoint="https://models.example.com/v1"))
    assert threading.active_count() == threads


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_a_certificate_is_checked_and_an_authority_of_ones_own_is_taken(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    with OpenAIServer("x", certificate=(certificate, key)) as server:
        with backend(server, endpoint_model="m") as of, pytest.raises(BackendError, match="ca_file"):
            of.generate(request(of), never, go_on)
        assert not server.asked
        with backend(server, ca_file=str(certificate)) as of:
            assert written(of, of.generate(request(of), never, go_on)) == "x"


# ---- idle work, bookkeeping --------------------------------------------------------------------------------


def test_only_what_the_server_has_not_seen_is_warmed() -> None:
    with OpenAIServer("x") as server, backend(server) as of:
        seen = request(of, "first = 1\n" * 60)
        of.generate(seen, never, go_on)
        assert of.warm(seen, never)
        assert len(server.asked) == 1
        assert of.warm(request(of, "other = 2\n" * 60), never)
        assert server.asked[1].body["max_tokens"] == 1
        of.forget(("c", "u"))
        assert of.warm(seen, never)
        assert len(server.asked) == 3


def test_warming_a_server_that_is_away_costs_nothing_but_its_turn() -> None:
    with OpenAIServer("x", plan=["500", "good"]) as server, backend(server) as of:
        other = request(of, "other = 2\n" * 60)
        assert of.warm(other, never)
        assert of.warm(other, never)
        assert len(server.asked) == 1


def test_counters_say_what_was_new() -> None:
    with OpenAIServer("abc") as server, backend(server) as of:
        asked = request(of)
        first = of.generate(asked, never, go_on).counters
        assert (first.reused_tokens, first.prefill_tokens) == (0, len(asked.prompt))
        again = of.generate(asked, never, go_on).counters
        assert (again.reused_tokens, again.prefill_tokens) == (len(asked.prompt), 0)
        assert first.generated_tokens == len(of.vocabulary.encode("a")) * 3
        assert first.drafted == {}


def test_sampling_is_the_servers() -> None:
    with OpenAIServer("x", tokenizer=TOKENIZER) as server, backend(server, ids=True) as of:
        of.generate(request(of, sampling=Sampling(temperature=0.5, top_k=7, top_p=0.9, seed=3)), never, go_on)
        body = server.asked[0].body
        assert (body["temperature"], body["top_k"], body["top_p"], body["seed"]) == (0.5, 7, 0.9, 3)
