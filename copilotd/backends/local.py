"""The backend of a machine's own: a pair of models in this process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from msgspec.structs import replace

from copilotd.backends.base import BackendError, Calibration, Description, Identity, Progress
from copilotd.backends.threads import Threads
from copilotd.config import DaemonSettings, Settings
from copilotd.engine.calibration import fastest_threads, prefill_tokens_per_s
from copilotd.engine.engine import Engine
from copilotd.engine.generation import Cancelled, Counters, Emit, Generation, GenerationRequest
from copilotd.engine.policy import Costs
from copilotd.models import speeds
from copilotd.models.errors import ModelError
from copilotd.models.load import Pair, load_pair
from copilotd.models.vocabulary import Vocabulary

TIMED_PREFILL = 32
"""Prompts shorter than this say little about the prefill speed."""


class OutOfMemoryError(BackendError):
    """The device has no memory left; named as torch's own, so that whoever looks for that finds it."""


class LocalBackend:
    """Implements `Backend` on a loaded pair. Everything but `describe` runs on one thread."""

    def __init__(self, pair: Pair, settings: DaemonSettings, costs: Costs | None = None) -> None:
        """Measures threads and step costs, unless they are given. Raises BackendError."""
        self.vocabulary: Vocabulary = pair.vocabulary
        self.name = " ".join(
            [f"{pair.target_name} + {pair.draft_name or 'no draft'},", f"{pair.quantisation}, {pair.device}"]
        )
        self.bytes_per_token = pair.bytes_per_token
        """of weights that a target step reads"""
        self._description = Description(
            target=pair.target_name,
            draft=pair.draft_name or "",
            quantisation=pair.quantisation,
            device=pair.device,
            kernels=pair.kernels,
            why_torch=pair.why_torch,
            tokenizer=str(pair.tokenizer),
            identity=Identity(speculation=pair.identity.speculation, cache=pair.identity.cache),
            smaller=pair.smaller,
            offers=pair.offers,
            remarks=tuple(pair.warnings),
        )
        with _said():
            self._threads: Threads | None = None
            """None where their number is not ours to choose"""
            self._fixed_threads = settings.threads if pair.device == "cpu" else 0
            if self._fixed_threads:
                torch.set_num_threads(self._fixed_threads)
            elif pair.device == "cpu":
                self._threads = Threads(fastest_threads(pair.target))
            self.prefill_tokens_per_s = prefill_tokens_per_s(pair.target)
            self._engine: Engine | None = Engine(
                pair.target,
                pair.draft,
                context_tokens=settings.context_tokens,
                max_draft_tokens=settings.max_draft_tokens,
                kv_budget=kv_budget(pair.device),
                costs=costs,
            )
            self.context_tokens = self.engine.context_tokens
            self._calibrated = replace(self.engine.costs), self.prefill_tokens_per_s
            if costs is None:
                _remember(pair, self.engine.costs)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise BackendError("the models are unloaded: run `copilotd reload`")
        return self._engine

    @classmethod
    def load(cls, settings: Settings, progress: Progress) -> LocalBackend:
        """The pair that the settings name, or a smaller one where memory does not suffice. Raises BackendError,
        or what `progress` raises to end the load.

        It loads on one thread unless the settings say more: who is busy beside us is not known yet.
        """
        torch.set_num_threads(settings.daemon.threads or 1)
        with _said():
            pair = load_pair(settings.daemon, progress)
        try:
            return cls(pair, settings.daemon)
        except OutOfMemoryError:  # the weights had room, the caches do not
            if not pair.smaller:
                raise
            smaller, said = pair.smaller, f"{pair.target_name} leaves no memory to work with"
            del pair
            _collect()
        daemon = replace(settings.daemon, model=smaller, draft="auto")
        backend = cls.load(replace(settings, daemon=daemon), progress)
        remark = f"{said}: copilotd goes on with {smaller} in its place"
        backend._description = replace(backend._description, remarks=(remark, *backend._description.remarks))
        return backend

    def generate(self, request: GenerationRequest, cancelled: Cancelled, emit: Emit) -> Generation:
        with _said():
            if self._threads is not None:
                self._threads.before()
            started = time.perf_counter()
            generation = self.engine.generate(request, cancelled, emit)
            if self._threads is not None:
                spent_ms = (time.perf_counter() - started) * 1e3
                self._threads.after(spent_ms, self._expected_ms(generation.counters))
        counters = generation.counters
        if generation.ids and counters.prefill_tokens >= TIMED_PREFILL:
            seen = counters.prefill_tokens / counters.prefill_ms * 1e3
            self.prefill_tokens_per_s += (seen - self.prefill_tokens_per_s) / 4
        return generation

    def _expected_ms(self, counters: Counters) -> float:
        """By what was measured at load, if every step had been the widest and one more was cut short."""
        costs, tokens_per_s = self._calibrated
        draft = costs.draft[-1][1] if costs.draft else 0.0
        steps = (counters.target_steps + 1) * costs.target[-1][1] + counters.draft_steps * draft
        return steps + counters.prefill_tokens / tokens_per_s * 1e3

    def warm(self, request: GenerationRequest, cancelled: Cancelled) -> bool:
        with _said():
            return self.engine.warm(request, cancelled)

    def forget(self, document: Hashable) -> None:
        self.engine.forget(document)

    def describe(self) -> Description:
        engine = self._engine
        return replace(
            self._description,
            kv_bytes=engine.kv_bytes if engine is not None else 0,
            calibration=self._calibration(),
        )

    def _calibration(self) -> Calibration:
        costs, tokens_per_s = self._calibrated
        threads = self._threads.now if self._threads is not None else self._fixed_threads
        return Calibration(threads, costs.target, costs.draft, tokens_per_s)

    def shrink(self) -> bool:
        given = self.engine.shrink()
        _collect()
        return given

    def close(self) -> None:
        """The models go; only `describe` may be asked afterwards."""
        self._engine = None
        _collect()


def _remember(pair: Pair, costs: Costs) -> None:
    """For the next choice of a model."""
    measured = speeds.Measured(
        step_ms=costs.target,
        read_bytes=pair.bytes_per_token,
        draft=pair.draft_name or "",
        draft_ms=costs.draft_ms(1) if costs.draft else 0.0,
    )
    speeds.note_load(pair.target_name, pair.quantisation, pair.device, measured)


@contextmanager
def _said() -> Iterator[None]:
    """What torch raises, as an error that says what to do. A lost CUDA device stays what it is: only a new
    process helps, and the daemon starts one."""
    try:
        yield
    except ModelError as error:
        raise BackendError(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _out_of_memory() from error
    except torch.AcceleratorError:
        raise
    except RuntimeError as error:
        if "allocate memory" in str(error):  # how torch says it on a CPU
            raise _out_of_memory() from error
        if str(error).startswith("CUDA error"):
            raise
        raise BackendError(
            f"the model could not be run ({type(error).__name__} in torch): run `copilotd reload`; "
            "if it comes again, try another quantisation or device"
        ) from error


def _out_of_memory() -> OutOfMemoryError:
    return OutOfMemoryError(
        "not enough memory for the model: choose a smaller model, quantisation nf4 or int8, or fewer "
        "context_tokens, or close other programs; then run `copilotd reload`"
    )


def _collect() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def kv_budget(device: str) -> int:
    """Bytes for the caches of one model: a quarter of a GPU's free memory; elsewhere an eighth of the
    machine's, 1 GiB at most."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(torch.device(device))
        return free // 4
    return min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8, 1 << 30)
