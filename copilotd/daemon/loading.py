"""The models: loaded in the background, used and freed on the engine thread.

Everything but `ticket` and `describe` is called on the engine thread. A failed load is not tried again
until somebody says `reload`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from copilotd.backends.base import Backend, BackendError, Description, Progress, Unavailable
from copilotd.completion.ask import Ask, Completion, Suggestion
from copilotd.config import DaemonSettings, Settings
from copilotd.daemon.log import log, place
from copilotd.engine.generation import Cancelled
from copilotd.models.offer import Offer
from copilotd.wire import Notice

PROGRESS_S = 0.1
"""progress is told no more often"""

MakeBackend: TypeAlias = Callable[[Settings, Progress], Backend]


class Completes(Protocol):
    """`completion.completer.Completer`, as the daemon uses it."""

    def complete(self, ask: Ask, cancelled: Cancelled, deadline: float | None) -> Completion:
        """`deadline` is a time of `time.monotonic`; what is decoded by then is answered."""
        ...

    def idle(self, cancelled: Cancelled) -> bool:
        """One piece of work ahead while nobody waits; False when nothing is left to do."""
        ...

    def accepted(self, client: str, suggestion: Suggestion) -> None:
        """The person took this, or this beginning of it."""
        ...

    def close_document(self, client: str, uri: str) -> None: ...

    def close_client(self, client: str) -> None: ...


MakeCompleter: TypeAlias = Callable[[Backend, DaemonSettings], Completes]


class ModelState(Struct, frozen=True, kw_only=True):
    """What everybody may know of the models at one moment."""

    state: Literal["unloaded", "loading", "ready", "failed"] = "unloaded"
    message: str = ""
    progress: float | None = None
    name: str = ""
    device: str = ""
    tokenizer: str = ""
    snippets: bool = False
    offers: tuple[Offer, ...] = ()
    notices: tuple[Notice, ...] = ()
    """to be said once to every front, as long as this load lasts"""


class LoadEnded(Exception):
    """Raised inside a load that nobody wants any more."""


class Models:
    def __init__(
        self,
        make_backend: MakeBackend,
        make_completer: MakeCompleter,
        changed: Callable[[ModelState], None],
    ) -> None:
        self._make_backend = make_backend
        self._make_completer = make_completer
        self._changed = changed
        self._backend: Backend | None = None
        self._settings = Settings()
        self._wanted = 0
        self._told = 0.0
        self.completer: Completes | None = None
        self.substitute: Completes | None = None
        """what writes while the backend cannot, once it was needed"""
        self._substitutes: Backend | None = None
        self._trouble: Notice | None = None
        self.state = ModelState()

    @property
    def completers(self) -> tuple[Completes, ...]:
        """Whoever may remember something of a document."""
        return tuple(one for one in (self.completer, self.substitute) if one is not None)

    def describe(self) -> Description:
        """What is loaded now; may be asked from any thread."""
        backend = self._backend
        return backend.describe() if backend is not None else Description()

    def ticket(self) -> int:
        """For the next load; every load with an older ticket gives up. Called on the socket loop."""
        self._wanted += 1
        return self._wanted

    def load(self, settings: Settings, ticket: int, notices: tuple[Notice, ...] = ()) -> None:
        """Free what is loaded and load what the settings say; `notices` say why. Never raises."""
        if ticket != self._wanted:
            return
        self._let_go()
        self._set(ModelState(state="loading", message="loading the models"))
        started = time.monotonic()
        try:
            backend = self._make_backend(settings, partial(self._progress, ticket))
            log.info("loaded %s in %.1f s", backend.name, time.monotonic() - started)
            self._take(backend, settings, notices)
        except LoadEnded:
            log.info("a load was ended")
        except Exception as error:
            log.error("loading failed: %s: %s", place(error), error)
            self.fail(f"copilotd cannot complete: {_reason(error)}")

    def free(self) -> None:
        """Let the models go, at once."""
        self._let_go()
        self._set(ModelState())

    def fail(self, message: str) -> None:
        """There is nothing to complete with until somebody says `reload`; the message says why."""
        self._let_go()
        self._set(ModelState(state="failed", message=message, notices=(Notice("error", message),)))

    def trouble(self, error: BackendError) -> None:
        """The backend cannot answer for now, and the rest goes on. A person is told once, if at all."""
        if isinstance(error, Unavailable):
            return
        if self._trouble is None:
            self._trouble = Notice("warning", f"{error}. copilotd tries again by itself.")
            log.warning("%s: %s", place(error.__cause__ or error), error)
            notices = (*self.state.notices, self._trouble)
            self._set(replace(self.state, message=str(error), notices=notices))
        if self.substitute is None and self._settings.daemon.fallback == "embedded":
            self._load_substitute()

    def well(self) -> None:
        """The backend answers."""
        if self._trouble is not None:
            notices = tuple(notice for notice in self.state.notices if notice is not self._trouble)
            self._trouble = None
            log.info("the backend answers again")
            self._set(replace(self.state, message="", notices=notices))

    def _load_substitute(self) -> None:
        """The pair that comes with copilotd. One that cannot be loaded is not tried again."""
        daemon = replace(
            self._settings.daemon, backend="local", model="embedded", draft="auto", fallback="none"
        )
        self._settings = replace(self._settings, daemon=replace(self._settings.daemon, fallback="none"))
        try:
            self._substitutes = self._make_backend(Settings(daemon=daemon), lambda what, done, total: None)
            self.substitute = self._make_completer(self._substitutes, daemon)
            log.info("%s writes meanwhile", self._substitutes.name)
        except Exception as error:
            log.error("loading the fallback failed: %s: %s", place(error), error)
            text = f"copilotd's fallback cannot write: {_reason(error)}"
            self._set(replace(self.state, notices=(*self.state.notices, Notice("warning", text))))

    def give_back(self) -> None:
        """A request ran out of memory: halve the caches; if that is done already, load a smaller pair."""
        backend = self._backend
        if backend is None:
            return
        description = backend.describe()
        if backend.shrink():
            notice = Notice("warning", "Out of memory: copilotd halved its caches and goes on.")
            self._set(replace(self.state, notices=(*self.state.notices, notice)))
        elif description.smaller:
            smaller = replace(self._settings.daemon, model=description.smaller, draft="auto")
            text = f"Out of memory: copilotd goes on with {description.smaller} in the place of {description.target}."
            del backend
            self.load(replace(self._settings, daemon=smaller), self._wanted, (Notice("warning", text),))
        else:
            self.fail(
                "copilotd cannot complete: out of memory. Choose a smaller model or free memory, "
                "then run `copilotd reload`"
            )

    def _take(self, backend: Backend, settings: Settings, notices: tuple[Notice, ...]) -> None:
        self._backend = backend
        self._settings = settings
        self.completer = self._make_completer(backend, settings.daemon)
        description = backend.describe()
        if description.why_torch:
            log.info("torch's kernels: %s", description.why_torch)
        notices += tuple(Notice("warning", remark) for remark in description.remarks)
        gc.collect()
        gc.freeze()  # what was loaded stays: no collection need look at it while somebody types
        self._set(
            ModelState(
                state="ready",
                name=backend.name,
                device=description.device,
                tokenizer=description.tokenizer,
                offers=description.offers,
                snippets=description.snippets,
                notices=notices,
            )
        )

    def _let_go(self) -> None:
        held = [backend for backend in (self._backend, self._substitutes) if backend is not None]
        self._backend = self._substitutes = self._trouble = None
        self.completer = self.substitute = None
        if held:
            for backend in held:
                backend.close()
            del held, backend
            gc.unfreeze()
            gc.collect()
            log.info("models freed")

    def _progress(self, ticket: int, what: str, done: float, total: float) -> None:
        if ticket != self._wanted:
            raise LoadEnded
        now = time.monotonic()
        if now - self._told < PROGRESS_S and done < total:
            return
        self._told = now
        message = f"{what}: {done:.0f} of {total:.0f} MB" if total else f"{what}: {done:.0f} MB"
        share = min(done / total, 1.0) if total else None
        self._set(ModelState(state="loading", message=message, progress=share))

    def _set(self, state: ModelState) -> None:
        self.state = state
        self._changed(state)


def is_out_of_memory(error: BaseException) -> bool:
    """torch's error is known by its name: this process may run without torch."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def is_lost_device(error: BaseException) -> bool:
    """A CUDA error after which nothing on the device works until the process ends."""
    return type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and str(error).startswith("CUDA error")
    )


def _reason(error: Exception) -> str:
    """What went wrong while loading, and what to do. No source text is known yet, so words may be shown."""
    if isinstance(error, BackendError):
        return str(error)
    if is_out_of_memory(error):
        return (
            "not enough memory for the model. Choose a smaller model or quantisation in the settings, "
            "or free memory, then run `copilotd reload`"
        )
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed. Run `pip install '/path/to/copilotd[local]'`, then `copilotd reload`"
    words = str(error).strip().partition("\n")[0][:300]
    return (
        f"loading the model failed ({type(error).__name__}: {words}). "
        "Check the model in the settings, then run `copilotd reload`"
    )
