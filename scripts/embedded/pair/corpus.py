"""Documents: source files that are worth learning from, each once, without secrets or licence headers."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

LANGUAGES = {
    ".py": "python",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".mts": "typescript",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".java": "java",
    ".sql": "sql",
    ".test": "sql",  # SQLite's tests: SQL inside Tcl
}


class Document(Struct, frozen=True):
    package: str
    path: str
    language: str
    text: str


def documents(package: str, files: Iterable[tuple[str, str]]) -> Iterator[Document]:
    """The documents among a package's (path, text)."""
    found: list[Document] = []
    for path, text in files:
        language = LANGUAGES.get(Path(path).suffix)
        if language is None or re.search(r"\.d\.[mc]?ts$|\.min\.|(^|/)(node_modules|vendor|_vendor)/", path):
            continue
        if path.endswith(".test"):
            path, text = path.removesuffix(".test") + ".sql", sql_of_tcl(text)
        text = without_licence(text.replace("\r\n", "\n").lstrip("\ufeff")).strip("\n") + "\n"
        if worth_learning(text):
            found.append(Document(package, path, language, text))
    compiled = any(document.language == "typescript" for document in found)
    for document in found:
        if not (compiled and document.language == "javascript"):
            yield document


def sql_of_tcl(text: str) -> str:
    """The statements SQLite's Tcl tests run: what stands in the braces after execsql and its kin."""
    statements = []
    for opening in re.finditer(r"(?:execsql|catchsql|eqp)(?:_test)?\b[^{}\n]*\{", text):
        depth, end = 1, opening.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        statement = textwrap.dedent(text[opening.end() : end - 1].strip("\n")).strip()
        if statement and "$" not in statement:
            statements.append(statement if statement.endswith(";") else statement + ";")
    return "\n".join(statements)


_HEADER = re.compile(r"\A(#![^\n]*\n)?\s*(/\*.*?\*/|(?:(?:#|//|--)[^\n]*\n)+)", re.DOTALL)


def without_licence(text: str) -> str:
    """`text` less a leading comment that speaks of copyright or licence."""
    header = _HEADER.match(text)
    if header and re.search(r"licen[cs]e|copyright", header[2], re.IGNORECASE):
        return text[header.end() :]
    return text


_GENERATED = re.compile(
    r"generated (?:by|from|file)|do not (?:edit|modify)|@generated|sourceMappingURL", re.I
)
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}|\bxox[abp]-[0-9A-Za-z-]{10}"
    r"|\b[sr]k_live_[0-9A-Za-z]{16}|\bAIza[0-9A-Za-z_-]{35}|\beyJ[\w-]{20,}\.eyJ[\w-]{20,}\.|\bnpm_[A-Za-z0-9]{36}"
)

_CONTROL = re.compile(r"<\|(?:endoftext|im_start|im_end|fim_\w+|repo_name|file_sep)\|>")


def worth_learning(text: str) -> bool:
    """Neither tiny nor huge, written by hand, not a table of data, without secrets."""
    if not 200 <= len(text) <= 200_000:
        return False
    lines = text.split("\n")
    if max(map(len, lines)) > 400 or len(text) / len(lines) > 80:
        return False
    letters = sum(map(str.isalpha, text)) / len(text)
    digits = sum(map(str.isdigit, text)) / len(text)
    if letters < 0.35 or digits > 0.15 or sum(map(str.isascii, text)) < 0.97 * len(text):
        return False
    return not (_GENERATED.search(text[:1000]) or _SECRET.search(text) or _CONTROL.search(text))


class Novelty:
    """Drops files most of whose lines were seen before: copies, forks and near-duplicates."""

    def __init__(self, most_seen: float = 0.6) -> None:
        self._seen: set[bytes] = set()
        self._most_seen = most_seen

    def admits(self, text: str) -> bool:
        telling = {line.strip() for line in text.split("\n") if len(line.strip()) >= 12}
        if not telling:
            return False
        hashes = {hashlib.blake2b(line.encode(), digest_size=8).digest() for line in telling}
        if len(hashes & self._seen) > self._most_seen * len(hashes):
            return False
        self._seen |= hashes
        return True


def write(path: Path, found: Iterable[Document]) -> Counter[str]:
    """JSON Lines; characters by language."""
    counted: Counter[str] = Counter()
    encoder = msgspec.json.Encoder()
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for document in found:
            counted[document.language] += len(document.text)
            file.write(encoder.encode(document) + b"\n")
    partial.rename(path)
    return counted


def read(path: Path) -> list[Document]:
    decoder = msgspec.json.Decoder(Document)
    with path.open("rb") as file:
        return [decoder.decode(line) for line in file]
