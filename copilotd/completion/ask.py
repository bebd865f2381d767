"""What the daemon asks of completion/ and what it gets back."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from copilotd.completion.explanation import Explanation
from copilotd.config import SessionSettings
from copilotd.engine.generation import Library


class Snippet(Struct, frozen=True):
    """A piece of another file that the model should see."""

    path: str
    text: str
    """"\n" line ends"""


class Ask(Struct, frozen=True, kw_only=True):
    """One request on an immutable snapshot. Offsets are code points of `text`, line ends as in the editor."""

    client: str
    """sessions never see each other's text or caches' keys"""
    uri: str
    language: str
    path: str
    """relative to its folder, "/" between parts; the file's name alone outside every folder"""
    repository: str = ""
    """the folder's name"""
    text: str
    offset: int
    cut_before: bool = False
    cut_after: bool = False
    trigger: Literal["automatic", "invoked"] = "automatic"
    selected: tuple[int, int, str] | None = None
    """range and text of the popup's highlighted entry"""
    tab_size: int | None = None
    insert_spaces: bool | None = None
    settings: SessionSettings = field(default_factory=SessionSettings)
    library: Library | None = None
    """what else of the workspace may be looked up"""
    snippets: tuple[Snippet, ...] = ()
    """in a stable order, the most wanted ones"""

    @property
    def cursor(self) -> int:
        """The offset, but never within "\\r\\n"."""
        within = self.text[self.offset - 1 : self.offset + 1] == "\r\n"
        return self.offset - 1 if within else self.offset


class Suggestion(Struct, frozen=True):
    """Replace text[start:end] by `text`."""

    start: int
    end: int
    text: str


class Completion(Struct):
    suggestions: list[Suggestion]
    reason: str
    """"" with suggestions, else the word `status` counts"""
    explanation: Explanation
    typed_through: bool = False
    joined: bool = False
