"""What the rules are given and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

Scope: TypeAlias = Literal["none", "line", "block"]


class Context(Struct, frozen=True, kw_only=True):
    """Where a completion lands. Windows of the document around the cursor, "\\n" line ends, tabs as they are."""

    before: str
    """text above and left of the cursor"""
    after: str
    """text right of and below the cursor"""
    language: str = ""
    """LSP language id"""
    scope: Scope = "block"
    """how much is wanted, as `scope.scope` decided"""
    selected: str = ""
    """what the popup's highlighted entry would still write after the cursor; "" without a popup"""
    sure: int | None = None
    """code points of the text, whole lines, of which the model is sure; None: all of them"""
    tab_size: int | None = None
    insert_spaces: bool | None = None

    @property
    def head(self) -> str:
        """The cursor's line, left of the cursor."""
        return self.before.rpartition("\n")[2]

    @property
    def tail(self) -> str:
        """The cursor's line, right of the cursor."""
        return self.after.partition("\n")[0]

    @property
    def below(self) -> str:
        """The next line that is not blank; "" where there is none."""
        return next((line for line in self.after.split("\n")[1:] if line.strip()), "")

    @property
    def above(self) -> str:
        """The last line above the cursor's that is not blank; "" where there is none."""
        return next((line for line in reversed(self.before.split("\n")[:-1]) if line.strip()), "")

    @property
    def blank(self) -> bool:
        """Nothing but blanks on the cursor's line."""
        return not self.head.strip() and not self.tail.strip()


class Change(Struct, frozen=True):
    """What a rule made of a text, and why."""

    text: str
    reason: str
    covers: int = 0
    """code points right of the cursor, on its line, that `text` contains and replaces"""


Rule: TypeAlias = Callable[[Context, str], Change | None]
"""A pure function on texts; None: the text is fine."""


class Applied(Struct, frozen=True):
    rule: str
    reason: str


class Result(Struct, frozen=True):
    text: str
    """"" where nothing is worth showing"""
    covers: int = 0
    """how many code points right of the cursor, on its line, the item replaces; the text contains them in order"""
    applied: tuple[Applied, ...] = ()
