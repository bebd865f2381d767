"""The context process: walks, watches, tokenises and indexes, so that the daemon's process does not.

Started by `context.process` with two inherited descriptors, a socket and the index's memory. It ends when
the socket closes.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from copilotd.context.index import IndexWriter, nearness
from copilotd.context.messages import (
    Ask,
    Begin,
    Buffer,
    Folders,
    Frames,
    FromContext,
    Progress,
    Skipped,
    Snippet,
    Snippets,
    ToContext,
    Visible,
    Warned,
    encode,
)
from copilotd.context.secrets import Secrets
from copilotd.context.snippets import Edits, Places, choose
from copilotd.context.tree import File, Root, Tree, language_of
from copilotd.context.walk import Skip
from copilotd.context.watch import KernelWatcher, PollingWatcher, Watcher

MIN_DELETED = 8
"""characters that are worth keeping for lookup when they go"""

SHORTEST = 8
"""lines of a piece of a buffer"""

SLICE_S = 0.02
"""Work between two looks at the socket."""


class Session:
    """One editor window: its folders, its buffers, what it edited."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.roots: dict[str, Root] = {}
        """by the folder's path as the editor has it"""
        self.texts: dict[str, str] = {}
        """by real path; "\\n" line ends"""
        self.numbers: dict[str, int | None] = {}
        self.named: dict[str, str] = {}
        """real paths of buffers to those that the daemon says"""
        self.gone: dict[str, int] = {}
        """buffers as they were before something was last deleted: what goes is often written again elsewhere,
        or anew with another name"""
        self.edits = Edits()
        self.tokenised: dict[str, dict[str, list[int]]] = {}
        """by path, what the pieces of a buffer are in ids: most of them are the same when it is told again"""


class _Sight:
    """What a session sees of the places: its own buffers, and its folders' files that are not open."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session, self._tree = session, tree

    def visible(self, path: str) -> bool:
        owner, _, name = path.rpartition("\0")
        if owner:
            return owner == str(self._session.owner)
        return name not in self._session.texts and self._root(name) is not None

    def readable(self, path: str) -> str | None:
        """The text of a buffer, or of the file where there is none."""
        name = path.rpartition("\0")[2]
        if name in self._session.texts:
            return self._session.texts[name]
        file, root = self._tree.files.get(name), self._root(name)
        if file is None or file.number is None or root is None:
            return None
        return root.walk.read(file.found)[0]

    def relative(self, path: str) -> str:
        name = path.rpartition("\0")[2]
        file = self._tree.files.get(name)
        return file.found.relative if file is not None else os.path.basename(name)

    def _root(self, path: str) -> Root | None:
        return next((root for root in self._session.roots.values() if root.holds(path)), None)


class Service:
    """Takes messages, does one step of work, says what is new; owned by the process's one loop."""

    def __init__(self, begin: Begin, writer: IndexWriter, encode_text: Callable[[str], list[int]]) -> None:
        self.outbox: list[FromContext] = []
        self._writer = writer
        self._encode = encode_text
        self._secrets = Secrets(begin.secrets_allowed)
        self._places = Places()
        self._sessions: dict[str, Session] = {}
        self._owners = 0
        self._watcher = self._start_watcher()
        self._tree = Tree(
            writer,
            encode_text,
            self._secrets,
            self._watch,
            self._unwatch,
            self._indexed,
            self._forgotten,
            self._skipped,
        )
        self._verbose = begin.verbose
        self._tree.moved = self._moved
        self._news = True
        self._said: Progress | None = None
        self._seen: dict[str, Visible] = {}

    # ---- messages ----------------------------------------------------------------------------------------

    def handle(self, message: ToContext) -> None:
        self._news = True
        if isinstance(message, Folders):
            self._folders(message)
        elif isinstance(message, Buffer):
            self._buffer(message)
        elif isinstance(message, Ask):
            self.outbox.append(Snippets(message.client, message.path, self._snippets(message)))

    def _session(self, client: str) -> Session:
        if client not in self._sessions:
            self._owners += 1
            self._sessions[client] = Session(self._owners)
        return self._sessions[client]

    def _folders(self, message: Folders) -> None:
        session = self._session(message.client)
        for path in message.paths:
            if path not in session.roots and (root := self._tree.use(path)) is not None:
                session.roots[path] = root
        for path in session.roots.keys() - set(message.paths):
            self._tree.release(session.roots.pop(path))
        self._end_if_empty(message.client, session)

    def _buffer(self, message: Buffer) -> None:
        session, path = self._session(message.client), _real(message.path)
        number = session.numbers.pop(path, None)
        before = session.texts.pop(path, None)
        self._places.remove(_buffer_key(session, path))
        text = None if message.text is None else message.text.replace("\r\n", "\n").replace("\r", "\n")
        if text is None or self._kept_out(session, path, text):
            self._take_out(number)
            self._take_out(session.gone.pop(path, None))
            session.tokenised.pop(path, None)
            session.named.pop(path, None)
            self._end_if_empty(message.client, session)
            return
        deleted = "" if before is None else session.edits.changed(path, before, text)
        if number is not None and len(deleted.strip()) >= MIN_DELETED:
            self._take_out(session.gone.pop(path, None))
            session.gone[path] = number
        else:
            self._take_out(number)
        session.texts[path] = text
        session.named[path] = message.path
        ids, language, near = self._tokenise(session, path, text), language_of(path), nearness(path)
        number = self._writer.add(ids, language, 0, session.owner, near)
        if number is None and self._writer.crowded:
            self._moved(self._tree.compact())
            number = self._writer.add(ids, language, 0, session.owner, near)
        session.numbers[path] = number
        self._places.add(_buffer_key(session, path), text)

    def _tokenise(self, session: Session, path: str, text: str) -> list[int]:
        """Only the pieces that have changed are encoded."""
        known, fresh = session.tokenised.get(path, {}), dict[str, list[int]]()
        ids: list[int] = []
        for piece in pieces(text):
            if piece not in fresh:
                fresh[piece] = known[piece] if piece in known else self._encode(piece)
            ids += fresh[piece]
        session.tokenised[path] = fresh
        return ids

    def _take_out(self, number: int | None) -> None:
        if number is not None:
            self._writer.remove(number)

    def _kept_out(self, session: Session, path: str, text: str) -> bool:
        """Secret, or ignored in every folder of the session that holds it: no context for anything."""
        relative = path.lstrip("/")
        if self._secrets.named(relative) or self._secrets.marked(relative, text):
            return True
        walks = [root.walk for root in session.roots.values() if Path(path).is_relative_to(root.walk.root)]
        return bool(walks) and all(walk.ignores(path) for walk in walks)

    def _end_if_empty(self, client: str, session: Session) -> None:
        if not session.roots and not session.texts:
            del self._sessions[client]
            self._seen.pop(client, None)

    def _snippets(self, ask: Ask) -> tuple[Snippet, ...]:
        session = self._sessions.get(ask.client)
        if session is None:
            return ()
        return choose(
            replace(ask, path=_real(ask.path)), self._places, session.edits, _Sight(session, self._tree)
        )

    # ---- work --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """A slice of work; False when nothing is left to do."""
        try:
            for folder in self._watcher.due():
                self._tree.changed(folder)
        except OSError as error:
            self._poll_instead(error)
        end = time.monotonic() + SLICE_S
        worked = False
        while self._tree.work():
            worked = True
            if time.monotonic() > end:
                break
        if worked or self._news:
            self._news = False
            self._publish()
        return not self._tree.settled

    def wait_s(self) -> float | None:
        """Until there may be work, if no message and nothing of `descriptors` comes before."""
        return self._watcher.wait_s() if self._tree.settled else 0.0

    @property
    def descriptors(self) -> list[int]:
        """Readable when folders have changed."""
        return [] if self._watcher.descriptor is None else [self._watcher.descriptor]

    def close(self) -> None:
        self._watcher.close()

    def _publish(self) -> None:
        for client, session in self._sessions.items():
            visible = Visible(
                client,
                sum({1 << root.bit for root in session.roots.values()}),
                session.owner,
                tuple(
                    file.number
                    for path in session.texts
                    if (file := self._tree.files.get(path)) is not None and file.number is not None
                ),
                {
                    session.named[path]: number
                    for path, number in session.numbers.items()
                    if number is not None
                },
            )
            if self._seen.get(client) != visible:
                self._seen[client] = visible
                self.outbox.append(visible)
        if self._tree.settled:
            now = Progress(
                folders=self._tree.folders,
                files=sum(file.number is not None for file in self._tree.files.values()),
                tokens=self._writer.tokens,
                skipped=dict(self._tree.skipped()),
                settled=True,
                reads=self._tree.reads,
            )
            if now != self._said:
                self._said = now
                self.outbox.append(now)

    def _indexed(self, file: File, text: str) -> None:
        self._places.add(file.found.path, text)

    def _forgotten(self, file: File) -> None:
        self._places.remove(file.found.path)

    def _skipped(self, path: str, why: Skip) -> None:
        if self._verbose and why != "ignored":
            self.outbox.append(Skipped(path.encode(errors="replace").decode(), why))

    def _moved(self, moved: dict[int, int]) -> None:
        for session in self._sessions.values():
            for path, number in session.numbers.items():
                if number is not None:
                    session.numbers[path] = moved[number]
            session.gone = {path: moved[number] for path, number in session.gone.items()}

    # ---- watching ----------------------------------------------------------------------------------------

    def _start_watcher(self) -> Watcher:
        try:
            return KernelWatcher()
        except OSError as error:
            self.outbox.append(_limit(error))
            return PollingWatcher()

    def _watch(self, folder: str) -> None:
        try:
            self._watcher.watch(folder)
        except FileNotFoundError:
            pass  # gone again; its parent's listing says so
        except OSError as error:
            self._poll_instead(error)
            self._watcher.watch(folder)

    def _unwatch(self, folder: str) -> None:
        self._watcher.unwatch(folder)

    def _poll_instead(self, error: OSError) -> None:
        self._watcher.close()
        self._watcher = PollingWatcher()
        for root in self._tree.roots.values():
            for folder in root.folders:
                self._watcher.watch(folder)
        self.outbox.append(_limit(error))


def pieces(text: str) -> Iterator[str]:
    """A text in pieces that begin at lines chosen by what stands in them, so that a change moves no others.

    Before such a line tokens end anyway, but for a tokenizer that joins a line's end and the next one's
    indentation, where lookup then misses one token in hundreds.
    """
    lines = text.split("\n")
    first = 0
    for at, line in enumerate(lines):
        rare = 3 if line[:1].strip() else 31
        if at - first >= SHORTEST and line.strip() and zlib.crc32(line.encode(errors="replace")) & rare == 0:
            yield "\n".join(lines[first:at]) + "\n"
            first = at
    yield "\n".join(lines[first:])


def _real(path: str) -> str:
    """What a file is called in the tree; a document without a file keeps its URI."""
    return os.path.realpath(path) if path.startswith("/") else path


def _buffer_key(session: Session, path: str) -> str:
    """Buffers among the places of definitions: no path on disk holds a NUL."""
    return f"{session.owner}\0{path}"


def _limit(error: OSError) -> Warned:
    return Warned(
        f"Watching the workspace with inotify is not possible ({error.strerror}); changed files are looked for every "
        "few seconds instead. Raise fs.inotify.max_user_watches or max_user_instances (sysctl) to be told at once."
    )


def serve(link: socket.socket, descriptor: int) -> None:
    """The process's loop: until the daemon hangs up."""
    frames = Frames(ToContext)
    service: Service | None = None
    writer = IndexWriter(descriptor)
    try:
        while True:
            others = service.descriptors if service is not None else []
            wait_s = service.wait_s() if service is not None else None
            readable, _, _ = select.select([link.fileno(), *others], [], [], wait_s)
            if link.fileno() in readable:
                data = link.recv(1 << 20)
                if not data:
                    return
                for message in frames.feed(data):
                    if isinstance(message, Begin):
                        service = Service(message, writer, _tokenizer(message.tokenizer))
                    elif service is not None:
                        service.handle(message)
            if service is not None:
                service.step()
                for reply in service.outbox:
                    link.sendall(encode(reply))
                service.outbox.clear()
    except ConnectionError:
        return  # the daemon was killed
    finally:
        if service is not None:
            service.close()


def _tokenizer(path: str) -> Callable[[str], list[int]]:
    if not path:
        return lambda text: []
    from copilotd.models.tokenizer import TokenizerVocabulary

    return TokenizerVocabulary.from_folder(Path(path)).encode


def main() -> None:
    """`python -P -m copilotd.context.service SOCKET INDEX`: two descriptors of the parent's."""
    os.nice(19)
    sys.excepthook = _end
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """To the daemon's stray output: an exception's words may be somebody's text, so they are left out."""
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(trace)]
    sys.stderr.write(f"the index process ends: {kind.__name__} in {' < '.join(reversed(places))}\n")


if __name__ == "__main__":
    main()
