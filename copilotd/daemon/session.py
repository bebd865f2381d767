"""What one connected front has told: documents, folders, settings. No sockets, no threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from copilotd import wire
from copilotd.completion.ask import Ask, Snippet
from copilotd.config import Loaded, SessionSettings
from copilotd.context.globs import compile_line, compile_lines
from copilotd.context.secrets import Secrets
from copilotd.engine.generation import Library

MARK = 256
"""characters around a change in which a mark of secrets may have come about"""


class Document(Struct, frozen=True):
    """One version of a document; `text` is never changed, so a request may keep it."""

    language: str
    version: int
    text: str
    cut_before: bool
    cut_after: bool
    secret: bool
    """by its name or by what stands in it: no completion, and its text goes nowhere"""


class Refused(Exception):
    """A request that gets no completion. The message is the word that `status` counts."""


class Session:
    def __init__(self, client: str, configured: Loaded) -> None:
        self.client = client
        self.editor = ""
        self.paused = False
        self.documents: dict[str, Document] = {}
        self._configured = configured
        self._settings = configured.settings.session
        self._folders: Sequence[wire.Folder] = ()
        self._secrets = Secrets(configured.settings.daemon.secrets_allowed)
        self._linked: set[str] = set()
        """open documents that are links to secret files"""

    def reconfigured(self, configured: Loaded) -> None:
        """The settings were read again; what the editor said stays."""
        self._configured = configured
        self._secrets = Secrets(configured.settings.daemon.secrets_allowed)

    def configure(self, message: wire.Configure) -> list[str]:
        """Take settings and folders; what the person should hear about them."""
        self._settings = message.settings
        self._folders = message.folders
        said = [message.settings, *(f.settings for f in message.folders if f.settings is not None)]
        globs = [glob for settings in said for glob in settings.globs_off]
        return [f"copilotd: the pattern {glob!r} in globs_off is not valid" for glob in _broken(globs)]

    def open(self, message: wire.Open) -> None:
        if message.uri.startswith("file:") and self._secrets.linked(str(path_of(message.uri))):
            self._linked.add(message.uri)
        self.documents[message.uri] = Document(
            message.language,
            message.version,
            message.text,
            message.cut_before,
            message.cut_after,
            self._is_secret(message.uri, message.text),
        )

    def change(self, message: wire.Change) -> None:
        """Raises FrameError where the front and we no longer have the same text."""
        document = self.documents.get(message.uri)
        if document is None:
            raise wire.FrameError("change of a document that is not open")
        text, secret = document.text, document.secret
        for splice in message.splices:
            if not 0 <= splice.start <= splice.end <= len(text):
                raise wire.FrameError("change outside the document")
            text = text[: splice.start] + splice.text + text[splice.end :]
            near = text[max(0, splice.start - MARK) : splice.start + len(splice.text) + MARK]
            secret = secret or self._is_secret(message.uri, near)
        if document.secret:  # the mark may be gone
            secret = self._is_secret(message.uri, text)
        self.documents[message.uri] = replace(document, version=message.version, text=text, secret=secret)

    def close(self, uri: str) -> None:
        self.documents.pop(uri, None)
        self._linked.discard(uri)

    def ask(
        self, message: wire.Complete, library: Library | None = None, snippets: tuple[Snippet, ...] = ()
    ) -> Ask:
        """The request on a snapshot of its document, with what the workspace has for it. Raises Refused."""
        document = self.documents.get(message.uri)
        if document is None:
            raise Refused("unopened")
        if document.version != message.version or not 0 <= message.offset <= len(document.text):
            raise Refused("stale")
        if self.paused:
            raise Refused("paused")
        if document.secret:
            raise Refused("secret")
        path = path_of(message.uri)
        folder = self._folder(path)
        settings = self._effective(folder)
        relative = str(path.relative_to(folder.path)) if folder else path.name
        if not settings.enabled or document.language in settings.languages_off:
            raise Refused("off")
        if settings.globs_off and _matches(settings.globs_off, relative):
            raise Refused("off")
        selected = message.selected
        return Ask(
            client=self.client,
            uri=message.uri,
            language=document.language,
            path=relative.replace("\ufffd", ""),  # bytes of a name that are no UTF-8
            repository=PurePosixPath(folder.path).name if folder else "",
            text=document.text,
            offset=message.offset,
            cut_before=document.cut_before,
            cut_after=document.cut_after,
            trigger=message.trigger,
            selected=(selected.start, selected.end, selected.text) if selected else None,
            tab_size=message.tab_size,
            insert_spaces=message.insert_spaces,
            settings=settings,
            library=library,
            snippets=snippets,
        )

    def _is_secret(self, uri: str, text: str) -> bool:
        path = path_of(uri)
        folder = self._folder(path)
        relative = str(path.relative_to(folder.path) if folder else path).lstrip("/")
        above = folder.path if folder else ""
        named = self._secrets.named(relative, above) or uri in self._linked
        return named or self._secrets.marked(relative, text)

    def _folder(self, path: PurePosixPath) -> wire.Folder | None:
        """The innermost folder of the session that holds the path."""
        holding = [folder for folder in self._folders if path.is_relative_to(folder.path)]
        return max(holding, key=lambda folder: len(PurePosixPath(folder.path).parts), default=None)

    def _effective(self, folder: wire.Folder | None) -> SessionSettings:
        said = folder.settings if folder and folder.settings is not None else self._settings
        return self._configured.enforce(said)


def path_of(uri: str) -> PurePosixPath:
    """The path part of any URI; untitled:Untitled-1 and the like count as a path too."""
    try:
        return PurePosixPath(unquote(urlsplit(uri).path))
    except ValueError:
        return PurePosixPath(uri)


def _matches(globs: Sequence[str], path: str) -> bool:
    return compile_lines(globs).match_file(path)


def _broken(globs: Sequence[str]) -> list[str]:
    broken = []
    for glob in globs:
        try:
            compile_line(glob)
        except ValueError:
            broken.append(glob)
    return broken
