"""Reads the golden cases: see README.md for the format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from copilotd.completion import postprocess
from copilotd.completion.postprocess import Context
from copilotd.completion.postprocess.sure import whole_lines
from copilotd.config import SessionSettings

FOLDER = Path(__file__).parent
CURSOR = "‸"
_OPTION = re.compile(r"\[(\w+): ([^\]]*)\]")
_CODE = re.compile(r"⟨([0-9a-f]+)⟩")


class Case(Struct, frozen=True, kw_only=True):
    name: str
    document: str
    says: str
    after: str | None
    """None: no item"""
    options: dict[str, str]

    @property
    def context(self) -> Context:
        before, _, after = self.document.replace("\r\n", "\n").partition(CURSOR)
        settings = SessionSettings(
            multiline=self.options.get("multiline", "auto"),  # type: ignore[arg-type]
            comments=self.options.get("comments", "on"),  # type: ignore[arg-type]
        )
        tabs, spaces = self.options.get("tabs"), self.options.get("spaces")
        context = Context(
            before=before,
            after=after,
            language=self.options["language"],
            selected=self.options.get("popup", ""),
            tab_size=int(tabs or spaces or 0) or None,
            insert_spaces=None if tabs is spaces else spaces is not None,
        )
        scope = self.options.get("scope") or postprocess.scope(context, settings)
        doubt = self.options.get("doubt")
        sure = whole_lines(self.says, self.says.index(doubt)) if doubt else None
        return replace(context, scope=scope, sure=sure)

    def accepted(self, off: frozenset[str] = frozenset()) -> str | None:
        """The document after accepting what is offered; None where nothing is."""
        context = self.context
        if context.scope == "none":
            return None
        result = postprocess.apply(context, self.says, off)
        if not result.text:
            return None
        before, _, after = self.document.partition(CURSOR)
        item = result.text
        if "\r\n" in self.document and "\n" not in self.document.replace("\r\n", ""):
            item = item.replace("\n", "\r\n")
        return before + item + after[result.covers :]


def read() -> Iterator[Case]:
    for path in sorted(FOLDER.glob("*.txt")):
        first, *rest = path.read_text(encoding="utf-8").split("\n=== ")
        language = first.removeprefix("language:").strip()
        for number, part in enumerate(rest):
            yield from _cases(
                path.stem, language, part if number < len(rest) - 1 else part.removesuffix("\n")
            )


def _cases(theme: str, language: str, part: str) -> Iterator[Case]:
    header, _, body = part.partition("\n")
    options = {"language": language, **dict(_OPTION.findall(header))}
    title = _OPTION.sub("", header).strip()
    document, *says, after = re.split(r"\n--- (?:says|after|nothing)(?=\n|$)\n?", "\n" + body)
    nothing = re.search(r"^--- nothing$", body, re.MULTILINE) is not None
    for number, text in enumerate(says, 1):
        yield Case(
            name=f"{theme}: {title}" + (f" ({number})" if len(says) > 1 else ""),
            document=_plain(document[1:], ended=True),
            says=_plain(text, ended=False),
            after=None if nothing else _plain(after.removesuffix("\n"), ended=True),
            options=options,
        )


def _plain(text: str, *, ended: bool) -> str:
    plain = _CODE.sub(lambda match: chr(int(match.group(1), 16)), text)
    plain = plain.replace("⇥", "\t").replace("␠", " ").replace("␍", "\r")
    if plain.endswith("␄"):
        return plain[:-1]
    if plain.endswith("␊"):
        return plain[:-1] + "\n"
    return plain + "\n" if ended else plain
