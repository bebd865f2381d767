"""The local backend over tiny pairs: answers, warming, memory, errors that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from copilotd.backends.base import BackendError, Identity
from copilotd.backends.local import LocalBackend, OutOfMemoryError
from copilotd.backends.threads import Threads
from copilotd.config import DaemonSettings, Settings
from copilotd.daemon.loading import is_lost_device, is_out_of_memory
from copilotd.engine.calibration import fastest_threads
from copilotd.engine.forward import DecoderRunner
from copilotd.engine.generation import GenerationRequest, Surroundings
from copilotd.engine.policy import Costs
from copilotd.engine.self_test import self_test
from copilotd.models.load import Pair
from tests.support.engine_checks import CHEAP_DRAFTS, carry_on, never, nothing, run_loop
from tests.support.scripted import ByteVocabulary
from tests.support.tiny_models import HOLDS, runner, source_prompts

SETTINGS = DaemonSettings(threads=1, context_tokens=300)


def model(noise: float = 0.0) -> DecoderRunner:
    return runner(HOLDS["int8"], vocabulary=ByteVocabulary.size, noise=noise)


def pair() -> Pair:
    target = model()
    return Pair(
        target=target,
        draft=model(noise=0.1),
        vocabulary=ByteVocabulary(),
        tokenizer=Path("tokenizer"),
        target_name="tiny",
        draft_name="tinier",
        quantisation="int8",
        device="cpu",
        memory_bytes=1000,
        bytes_per_token=600,
        identity=self_test(target),
        warnings=["The draft is heavy"],
    )


@pytest.fixture
def backend() -> LocalBackend:
    return LocalBackend(pair(), SETTINGS, CHEAP_DRAFTS)


def request(**options: object) -> GenerationRequest:
    prompt = next(prompt for prompt in source_prompts(20) if len(prompt) > 60)
    values = {
        "prompt": prompt,
        "surroundings": Surroundings(before=prompt),
        "max_new_tokens": 16,
        "slot": (("client", "file:///a"), "main"),
    }
    return GenerationRequest(**{**values, **options})  # type: ignore[arg-type]


def test_it_writes_what_the_target_writes(backend: LocalBackend) -> None:
    truth = run_loop(model(), request(), nothing()).ids
    for speculation in ("auto", "on", "off"):
        assert backend.generate(request(speculation=speculation), never, carry_on).ids == truth


def test_it_measures_its_own_steps() -> None:
    backend = LocalBackend(pair(), SETTINGS)
    assert [rows for rows, _ in backend.engine.costs.target] == list(range(1, 10))
    assert backend.engine.costs.draft_ms(1) > 0
    assert backend.prefill_tokens_per_s > 0


def test_threads_are_chosen_among_the_machine_s() -> None:
    before = torch.get_num_threads()
    assert fastest_threads(model()) >= 1
    assert torch.get_num_threads() == before


class Told(Threads):
    """Remembers what it was asked and told."""

    def __init__(self) -> None:
        super().__init__(1, lambda threads: None)
        self.said: list[tuple[float, float] | str] = []

    def before(self) -> None:
        self.said.append("before")

    def after(self, spent_ms: float, expected_ms: float) -> None:
        self.said.append((spent_ms, expected_ms))


def test_the_rule_of_threads_hears_of_every_generation(backend: LocalBackend) -> None:
    backend._threads = told = Told()
    backend._calibrated = Costs(target=((1, 2.0), (4, 3.0)), draft=((1, 1.0),)), 1000.0
    done = backend.generate(request(), never, carry_on).counters
    wanted = 3.0 * (done.target_steps + 1) + done.draft_steps + done.prefill_tokens
    assert told.said[0] == "before"
    [(spent, expected)] = told.said[1:]  # type: ignore[misc]
    assert expected == pytest.approx(wanted)
    assert spent >= done.prefill_ms + done.decode_ms
    backend.generate(request(slot=(("client", "file:///b"), "main")), lambda: True, carry_on)
    assert told.said[-1][1] == pytest.approx(3.0)  # type: ignore[index]


def test_threads_that_the_settings_name_are_kept(backend: LocalBackend) -> None:
    assert backend._threads is None


def test_the_prefill_speed_follows_what_is_seen(backend: LocalBackend) -> None:
    backend.prefill_tokens_per_s = 1e9
    backend.generate(request(), never, carry_on)
    assert backend.prefill_tokens_per_s < 0.8e9


def test_warm_prefills_both_prompts(backend: LocalBackend) -> None:
    assert backend.warm(request(), never)
    counters = backend.generate(request(), never, carry_on).counters
    assert counters.prefill_tokens == 1
    assert counters.drafted["draft"] > 0
    assert not backend.warm(request(slot="other"), lambda: True)


def test_it_says_what_it_is(backend: LocalBackend) -> None:
    backend.generate(request(), never, carry_on)
    about = backend.describe()
    assert (about.target, about.draft, about.quantisation, about.device) == ("tiny", "tinier", "int8", "cpu")
    assert about.identity == Identity(speculation=True, cache=True)
    assert about.kv_bytes > 0
    assert about.remarks == ("The draft is heavy",)
    assert backend.name == "tiny + tinier, int8, cpu"
    assert backend.context_tokens == 300


def test_shrinking_and_closing_give_memory_back(backend: LocalBackend) -> None:
    for slot in "abcd":
        backend.generate(request(slot=slot, speculation="on"), never, carry_on)
    held = backend.describe().kv_bytes
    assert backend.shrink()
    assert backend.describe().kv_bytes <= held / 2
    backend.close()
    assert backend.describe().kv_bytes == 0
    with pytest.raises(BackendError, match="copilotd reload"):
        backend.generate(request(), never, carry_on)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_says_what_to_do(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing(backend, monkeypatch, error)
    with pytest.raises(OutOfMemoryError, match="smaller model") as raised:
        backend.generate(request(), never, carry_on)
    assert is_out_of_memory(raised.value)


def test_an_error_of_torch_says_what_to_do_and_the_next_request_works(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        failing(backend, patch, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        with pytest.raises(BackendError, match="copilotd reload"):
            backend.generate(request(), never, carry_on)
    assert backend.generate(request(), never, carry_on).ids


def test_a_lost_device_stays_recognisable(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(backend, monkeypatch, torch.AcceleratorError("CUDA error: an illegal memory access"))
    with pytest.raises(RuntimeError) as raised:
        backend.generate(request(), never, carry_on)
    assert is_lost_device(raised.value)


def failing(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def step(cache: object, ids: Sequence[int], rows: int) -> torch.Tensor:
        raise error

    monkeypatch.setattr(backend.engine.target, "step", step)


def test_a_model_that_is_not_there_is_one_clear_message(tmp_path: Path) -> None:
    for model in (str(tmp_path), "no-such-model"):
        settings = Settings(daemon=DaemonSettings(model=model, threads=1))
        with pytest.raises(BackendError) as raised:
            LocalBackend.load(settings, lambda what, done, total: None)
        assert "\n" not in str(raised.value)
