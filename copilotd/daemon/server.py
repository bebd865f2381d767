"""The resident daemon: the socket loop that speaks with every front, beside the one engine thread."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, ParamSpec

import msgspec
from msgspec.structs import replace

from copilotd import wire
from copilotd.completion.ask import Completion, Suggestion
from copilotd.config import Loaded, SettingsError
from copilotd.context.messages import Progress
from copilotd.daemon import platform
from copilotd.daemon.address import Address
from copilotd.daemon.connection import Connection
from copilotd.daemon.engine import AWAY, Engine
from copilotd.daemon.loading import MakeBackend, MakeCompleter, Models, ModelState
from copilotd.daemon.log import log, place
from copilotd.daemon.metrics import Counting, Report
from copilotd.daemon.offering import Once
from copilotd.daemon.offering import message as offer_message
from copilotd.daemon.scheduler import Job, Scheduler
from copilotd.daemon.session import Refused
from copilotd.daemon.status import Counts, Index, Status
from copilotd.daemon.taken import Taken, Takings
from copilotd.daemon.workspace import Workspace

HELLO_S = 10.0
"""a connection that says nothing for so long is closed"""
WATCH_S = 5.0
"""how often the daemon looks whether its socket is still there"""
FAREWELL_S = 3.0
"""how long a stopping daemon waits for the index's process, and for the engine's step to end"""

P = ParamSpec("P")


class Daemon:
    """One user's daemon. `run` returns when it was stopped, was idle for long, or lost its device."""

    def __init__(
        self,
        make_backend: MakeBackend,
        make_completer: MakeCompleter,
        load_settings: Callable[[], Loaded],
        *,
        version: str,
        log_path: Path,
        survived: Callable[[], None] = lambda: None,
    ) -> None:
        """`survived` is called when a load failed in an orderly way, after a request was worked off,
        and when a person ends it."""
        self._load_settings = load_settings
        self._version = version
        self._log_path = log_path
        self._survived = survived
        self._configured = Loaded()
        self._started = self._last_request = self._last_editor = time.monotonic()
        self._connections: dict[str, Connection] = {}
        self._connected_ever = 0
        self._counts = Counts()
        self._counting = Counting()
        self._takings = Takings()
        self._offered = Once(log_path.parent / "offered")
        self._model = ""
        """the target loaded last, for the counting"""
        self._loads = 0
        self._last_error = ""
        self._state = ModelState()
        self._stop = asyncio.Event()
        self._lost = False
        self._scheduler = Scheduler()
        self._workspace = Workspace(log_path.parent, self._warn)
        self._models = Models(make_backend, make_completer, self._on_loop(self._models_changed))
        self._engine = Engine(
            self._scheduler, self._models, self._on_loop(self._finished), self._on_loop(self._device_lost)
        )

    async def run(self, address: Address) -> bool:
        """Serve until the end. False: the process has to end at once, for the engine thread cannot."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        for problem in address.problems:
            log.warning("not at the usual place: %s", problem)
        self._engine.start()
        self._configure()
        server = await asyncio.start_unix_server(self._serve, sock=address.listener)
        watch = asyncio.create_task(self._watch(address, server))
        await self._stop.wait()
        watch.cancel()
        server.close()
        address.withdraw()
        return await self._leave()

    async def _leave(self) -> bool:
        log.info("leaving")
        self._end(self._scheduler.cancel_all(), "cancelled")
        for connection in self._connections.values():
            if connection.session is not None and not self._lost:
                connection.send(wire.Done("the daemon leaves"))  # come back when you need one
            connection.close()
        self._models.ticket()
        self._scheduler.call(self._models.free)
        self._scheduler.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._workspace.close()
        if not self._lost:
            await asyncio.to_thread(self._engine.join, FAREWELL_S)
        return not self._engine.is_alive()

    def _on_loop(self, receive: Callable[P, None]) -> Callable[P, None]:
        """`receive`, to be called on the engine thread and run on the loop."""

        def post(*args: P.args, **kwargs: P.kwargs) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody is there to hear it
                self._loop.call_soon_threadsafe(partial(receive, *args, **kwargs))

        return post

    # ---- connections ----

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not platform.is_ours(writer.get_extra_info("socket")):
            log.warning("refused a connection of another user")
            writer.close()
            return
        self._connected_ever += 1
        connection = Connection(f"c{self._connected_ever}", writer)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = wire.from_front(await wire.read_frame(reader))
            self._welcome(connection, hello)
            while True:
                self._receive(connection, wire.from_front(await wire.read_frame(reader)))
        except wire.FrameError as error:
            log.warning("closed %s: %s", connection.client, error)
        except (EOFError, ConnectionError, TimeoutError):
            pass
        finally:
            self._disconnected(connection)

    def _welcome(self, connection: Connection, hello: wire.FromFront) -> None:
        if not isinstance(hello, wire.Hello):
            raise wire.FrameError("the first message is not Hello")
        connection.send(wire.Welcome(self._version, os.getpid()))
        self._connections[connection.client] = connection
        if hello.role == "editor":
            connection.begin(hello.editor, self._configured)
        connection.tell(self._state)
        self._offer()

    def _offer(self) -> None:
        """Once in a person's life with copilotd, to the first editor there is."""
        editor = next((c for c in self._connections.values() if c.session is not None), None)
        if editor is not None and self._state.offers and self._offered.take():
            editor.send(offer_message(self._state.offers))

    def _disconnected(self, connection: Connection) -> None:
        self._judge(self._takings.closing(connection.client, None, self._text_of))
        self._connections.pop(connection.client, None)
        connection.close()
        self._scheduler.leave(connection.client)
        if connection.session is not None:
            self._last_editor = time.monotonic()
            self._workspace.left(connection.client)
            self._scheduler.call(partial(self._forget_client, connection.client))

    def _forget_client(self, client: str) -> None:
        for completer in self._models.completers:
            completer.close_client(client)

    def _forget_document(self, client: str, uri: str) -> None:
        for completer in self._models.completers:
            completer.close_document(client, uri)

    # ---- messages ----

    def _receive(self, connection: Connection, message: wire.FromFront) -> None:
        if isinstance(message, wire.Control):
            self._control(connection, message.verb)
            return
        session = connection.session
        if session is None:
            raise wire.FrameError("an editor's message from a command")
        match message:
            case wire.Complete():
                self._complete(connection, message)
            case wire.Cancel():
                if job := self._scheduler.cancel(connection.client, message.id):
                    self._end([job], "cancelled")
            case wire.Change():
                session.change(message)
                current = partial(session.documents.get, message.uri)
                self._workspace.changed(connection.client, message.uri, current)
            case wire.Open():
                session.open(message)
                self._workspace.opened(connection.client, message.uri, session.documents[message.uri])
            case wire.Close():
                self._judge(self._takings.closing(connection.client, message.uri, self._text_of))
                session.close(message.uri)
                self._workspace.closed(connection.client, message.uri)
                self._scheduler.call(partial(self._forget_document, connection.client, message.uri))
            case wire.Configure():
                for text in session.configure(message):
                    connection.send(wire.Notice("warning", text))
                self._workspace.configured(connection.client, message.folders)
            case wire.Pause():
                session.paused = message.paused
                connection.tell(self._state)
            case wire.Accepted():
                self._accepted(connection, message)
            case wire.AskOffer():
                connection.send(offer_message(self._state.offers))
            case wire.Hello():
                raise wire.FrameError("a second Hello")

    def _complete(self, connection: Connection, message: wire.Complete) -> None:
        assert connection.session is not None
        self._last_request = time.monotonic()
        if message.id in connection.asked:
            raise wire.FrameError("two requests with one id")
        try:
            client, uri = connection.client, message.uri
            ask = connection.session.ask(
                message, self._workspace.library(client, uri), self._workspace.snippets(client, uri)
            )
            document = connection.session.documents[uri]
            self._workspace.look_around(client, uri, document, message.offset)
            if self._state.state != "ready":
                raise Refused(self._not_ready())
        except Refused as refused:
            self._end(self._scheduler.supersede(connection.client), "superseded")
            self._counts.empty(str(refused))
            opened = connection.session.documents.get(message.uri)
            self._counting.empty(opened.language if opened else "", str(refused))
            connection.send(wire.Answer(message.id, outcome="empty", reason=str(refused)))
            return
        job = Job(connection.client, message.id, ask, explain=message.explain)
        connection.asked[job.id] = job
        self._end(self._scheduler.submit(job), "superseded")

    def _not_ready(self) -> str:
        """Why there is no answer; unloaded models are on their way back after it."""
        if self._state.state == "unloaded":
            self._load()
        return "failed" if self._state.state == "failed" else "loading"

    def _accepted(self, connection: Connection, message: wire.Accepted) -> None:
        self._counts.requests.accepted += 1
        asked = connection.shown_for
        if (suggestion := connection.shown.get(message.item)) and asked is not None:
            taken = replace(suggestion, text=suggestion.text[: message.length])
            self._scheduler.call(partial(self._tell_accepted, connection.client, taken))
            counters = self._counting.requests(asked.language)
            if taken == suggestion:
                counters.accepted += 1
            else:
                counters.accepted_in_part += 1
            counters.accepted_characters += len(taken.text)
            self._takings.add(
                Taken(asked.client, asked.uri, asked.language, taken.start, taken.text, time.monotonic())
            )

    def _text_of(self, client: str, uri: str) -> str | None:
        """An open document as it is now."""
        connection = self._connections.get(client)
        document = connection.session.documents.get(uri) if connection and connection.session else None
        return document.text if document else None

    def _judge(self, ended: Iterable[tuple[Taken, bool | None]]) -> None:
        for taken, kept in ended:
            counters = self._counting.requests(taken.language)
            counters.kept += kept is True
            counters.changed += kept is False

    def _tell_accepted(self, client: str, suggestion: Suggestion) -> None:
        for completer in self._models.completers:
            completer.accepted(client, suggestion)

    def _end(self, jobs: Iterable[Job], outcome: Literal["cancelled", "superseded"]) -> None:
        """Answer at once; the engine lets the job go within a step."""
        for job in jobs:
            if connection := self._wanting(job):
                self._counts.requests.cancelled += 1
                self._counting.requests(job.ask.language).cancelled += 1
                connection.send(wire.Answer(job.id, outcome=outcome))

    def _wanting(self, job: Job) -> Connection | None:
        """Who still waits for this job's answer. Asked once: the answer is theirs."""
        connection = self._connections.get(job.client)
        if connection is None or connection.asked.get(job.id) is not job:
            return None
        del connection.asked[job.id]
        return connection

    # ---- commands ----

    def _control(
        self, connection: Connection, verb: Literal["status", "metrics", "stop", "reload", "unload"]
    ) -> None:
        match verb:
            case "status":
                connection.send(wire.Report(msgspec.Raw(msgspec.msgpack.encode(self.status()))))
            case "metrics":
                self._judge(self._takings.due(time.monotonic(), self._text_of))
                report = Report(self._counting.metrics(), self.status())
                connection.send(wire.Report(msgspec.Raw(msgspec.msgpack.encode(report))))
            case "stop":
                self._survived()
                connection.send(wire.Done("stopping"))
                self._stop.set()
            case "reload":
                connection.waits_for = ("ready", "failed")
                self._configure()
            case "unload":
                connection.waits_for = ("unloaded",)
                self._unload()

    def status(self) -> Status:
        sessions = [c.session for c in self._connections.values() if c.session is not None]
        description = self._models.describe()
        state = "ready" if self._state.state == "unloaded" else self._state.state
        return Status(
            pid=os.getpid(),
            version=self._version,
            uptime_s=round(time.monotonic() - self._started, 3),
            state=state,
            message=self._state.message,
            device=description.device,
            target=description.target,
            draft=description.draft,
            quantisation=description.quantisation,
            kernels=description.kernels,
            why_torch=description.why_torch,
            identity=description.identity,
            calibration=description.calibration,
            clients=len(sessions),
            documents=sum(len(session.documents) for session in sessions),
            kv_bytes=description.kv_bytes,
            index=_index(self._workspace.progress),
            requests=self._counts.requests,
            acceptance=self._counts.acceptance(),
            drafted=self._counts.drafted,
            accepted=self._counts.accepted,
            target_steps=self._counts.target_steps,
            generated_tokens=self._counts.generated_tokens,
            prefill=self._counts.prefill,
            prefill_tokens=self._counts.prefill_tokens,
            reused_tokens=self._counts.reused_tokens,
            loads=self._loads,
            last_error=self._last_error,
            log_path=str(self._log_path),
        )

    # ---- models ----

    def _configure(self) -> None:
        """Read the settings and load what they say. Settings that cannot be read load nothing."""
        try:
            self._configured = self._load_settings()
        except SettingsError as error:
            message = f"copilotd's settings cannot be used: {error}. Mend them, then run `copilotd reload`"
            self._end_work()
            self._scheduler.call(partial(self._models.fail, message))
            return
        log.setLevel(self._configured.settings.daemon.log_level.upper())
        for connection in self._connections.values():
            if connection.session is not None:
                connection.session.reconfigured(self._configured)
        self._load()

    def _load(self) -> None:
        self._loads += 1
        self._last_request = time.monotonic()
        self._state = ModelState(state="loading", message="loading the models")
        ticket = self._end_work()
        self._scheduler.call(
            partial(self._models.load, self._configured.settings, ticket, _notices(self._configured))
        )

    def _unload(self) -> None:
        self._end_work()
        self._scheduler.call(self._models.free)

    def _end_work(self) -> int:
        """What runs or loads gives up, and what went wrong before may be said again; the next load's ticket."""
        self._end(self._scheduler.cancel_all(), "cancelled")
        for connection in self._connections.values():
            connection.forget_notices()
        return self._models.ticket()

    def _models_changed(self, state: ModelState) -> None:
        self._state = state
        if state.state == "failed" or (state.state == "ready" and state.message):  # the backend is away
            self._last_error = state.message
        elif state.state == "ready":
            self._last_error = ""  # what was wrong is mended
        if state.state == "failed":
            self._survived()
        if state.state == "ready":
            self._model = self._models.describe().target
            self._workspace.begin(state.tokenizer, self._configured.settings.daemon, state.snippets)
        for connection in self._connections.values():
            connection.tell(state)
            if state.state in connection.waits_for:
                connection.waits_for = ()
                failed = state.state == "failed"
                connection.send(wire.Done(state.message or f"{state.state} {state.name}".strip(), failed))
        self._offer()

    def _finished(self, job: Job, outcome: Completion | str) -> None:
        """The engine is done with a job, whether or not anybody still waits for it."""
        connection = self._wanting(job)
        if isinstance(outcome, str):
            if outcome != AWAY:  # the state says so, if it lasts
                self._last_error = self._last_error or f"a request failed ({outcome}); see the log"
            if connection is not None:
                self._counts.empty(outcome)
                self._counting.empty(job.ask.language, outcome)
                connection.send(wire.Answer(job.id, outcome="empty", reason=outcome))
            return
        self._survived()
        self._counts.worked(outcome)
        self._counting.worked(job.ask.language, self._model, outcome)
        if connection is not None:
            self._counts.answered(outcome)
            self._counting.answered(
                job.ask.language,
                outcome,
                waited_ms=(job.started - job.arrived) * 1e3,
                answer_ms=(time.monotonic() - job.arrived) * 1e3,
                new=connection.shows_new(job.ask, outcome),
            )
            connection.answer(job, outcome)

    def _device_lost(self) -> None:
        """Nothing works any more until a new process takes the device; the fronts start one."""
        log.error("the engine is lost; leaving so that a new daemon can take over")
        self._lost = True
        self._stop.set()

    def _warn(self, text: str) -> None:
        """Something does without which completion goes on: said in the log, and once to each front."""
        log.warning("%s", text)
        for connection in self._connections.values():
            if connection.session is not None:
                connection.send(wire.Notice("log", text))

    # ---- time ----

    async def _watch(self, address: Address, server: asyncio.Server) -> None:
        while not self._stop.is_set():
            settings = self._configured.settings.daemon
            unload_in = self._left(settings.idle_unload_s, self._last_request)
            exit_in = self._left(settings.idle_exit_s, self._last_editor)
            if exit_in <= 0:
                log.info("no editor for %d s", settings.idle_exit_s)
                self._stop.set()
                return
            if unload_in <= 0 and self._state.state == "ready":
                self._unload()
            await asyncio.sleep(max(0.05, min(WATCH_S, unload_in if unload_in > 0 else WATCH_S, exit_in)))
            if any(connection.session for connection in self._connections.values()):
                self._last_editor = time.monotonic()
            self._judge(self._takings.due(time.monotonic(), self._text_of))
            server = await self._keep(address, server)

    def _left(self, limit_s: int, since: float) -> float:
        return since + limit_s - time.monotonic() if limit_s else float("inf")

    async def _keep(self, address: Address, server: asyncio.Server) -> asyncio.Server:
        """Stay reachable when a cleaner takes our files; leave when another daemon may have our place."""
        if not address.owned():
            log.warning("the lock is gone; leaving")
            self._stop.set()
        elif not address.reachable():
            log.warning("the socket is gone; listening anew")
            server.close()
            try:
                address.renew()
                return await asyncio.start_unix_server(self._serve, sock=address.listener)
            except (OSError, platform.Unusable) as error:
                log.error("cannot listen anew: %s", error)
                self._stop.set()
        return server


def _notices(configured: Loaded) -> tuple[wire.Notice, ...]:
    if not configured.problems:
        return ()
    problems = "; ".join(configured.problems)
    remedy = "The default is used. Mend it, then run `copilotd reload`"
    return (wire.Notice("warning", f"copilotd's settings: {problems}. {remedy}"),)


def _index(progress: Progress) -> Index:
    return Index(progress.folders, progress.files, progress.tokens, progress.skipped)


def _log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    log.error("in the socket loop: %s", place(error) if isinstance(error, BaseException) else "unknown")
