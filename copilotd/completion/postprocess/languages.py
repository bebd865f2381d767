"""What the rules need to know of a language: comments, strings, what opens and closes a block."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

CLOSERS = ")]}"
PAIRS = {")": "(", "]": "[", "}": "{"}


class Language(Struct, frozen=True, kw_only=True):
    line_comments: tuple[str, ...] = ()
    """regular expressions of what begins a comment to the line's end"""
    block_comments: tuple[tuple[str, str], ...] = ()
    strings: str = "\"'"
    """quotes of strings that end on their line"""
    long_strings: tuple[str, ...] = ()
    """quotes of strings that may span lines"""
    characters: bool = False
    """' quotes one character only (Rust, where it also begins a lifetime)"""
    opener: str = r"\{"
    """regular expression: a line that ends so opens a block"""
    goes_on: str = r"\}?\s*(?:else|catch|finally|while)\b"
    """regular expression: a line that begins so goes on with the block it closes"""
    ends: str = r"(?!)"
    """regular expression: a word that closes a block as a bracket would, alone on its line"""
    statement_end: str = ""
    """a line that ends so ends a statement, which is as much as is offered"""
    unit: str = ""
    """the indentation every file has in this language"""
    prose: bool = False
    top: str = ""
    """regular expression: where a line begins so, nothing above is open"""


_C = Language(
    line_comments=("//",),
    block_comments=(("/*", "*/"),),
    long_strings=('"""',),
    opener=r"\{|\b(?:case\b.*|default\s*):",
)
_SCRIPT = Language(
    line_comments=("//",),
    block_comments=(("/*", "*/"),),
    long_strings=("`",),
    opener=r"\{|\b(?:case\b.*|default\s*):",
)
_GO = Language(
    line_comments=("//",),
    block_comments=(("/*", "*/"),),
    long_strings=("`",),
    opener=r"\{|\b(?:import|var|const|type)\s*\(|\b(?:case\b.*|default\s*):",
    unit="\t",
    top=r"func\b",
)
_RUST = Language(
    line_comments=("//",), block_comments=(("/*", "*/"),), strings='"', characters=True, opener=r"\{"
)
_PHP = Language(line_comments=("//", "#(?!\\[)"), block_comments=(("/*", "*/"),), opener=r"\{|:")
_PYTHON = Language(
    line_comments=("#",),
    long_strings=('"""', "'''"),
    opener=r":",
    goes_on=r"(?:else|elif|except|finally|case)\b",
    top=r"(?:async\s+def|def|class)\s+\w",
)
_HASH = Language(
    line_comments=(r"(?<!\S)#",),
    opener=r"\{|\b(?:then|do|else)|\bin",
    goes_on=r"(?:else|elif|fi\s*\|)\b",
    ends=r"(?:fi|done|esac)\b",
)
_MAKE = Language(line_comments=(r"(?<!\S)#",), opener=r":(?!=).*", unit="\t")
_JSON = Language(line_comments=("//",), block_comments=(("/*", "*/"),), opener=r"[\[{]")
_RUBY = Language(
    line_comments=(r"(?<!\S)#",),
    opener=r"\{|\b(?:then|do|else|begin|ensure)|\bdo\s*\|[^|]*\||^\s*(?:def|class|module|if|unless|while|until|case|elsif|when|rescue)\b.*",
    goes_on=r"(?:else|elsif|when|rescue|ensure)\b",
    ends=r"end\b",
)
_YAML = Language(line_comments=(r"(?<!\S)#",), opener=r":|:\s*[|>][-+]?", goes_on=r"(?!)")
_SQL = Language(
    line_comments=("--",),
    block_comments=(("/*", "*/"), ("{#", "#}")),
    opener=r"\(|\b(?:as|begin|then|loop|select|from|where|set|values)",
    goes_on=r"(?:else|elsif|elseif|when)\b",
    ends=r"end\b",
    statement_end=";",
)
_LUA = Language(
    block_comments=(("--[[", "]]"),),
    line_comments=("--",),
    opener=r"\{|\b(?:then|do|else|repeat)|\bfunction\b.*\)",
    goes_on=r"(?:else|elseif)\b",
    ends=r"(?:end|until)\b",
)
_HASKELL = Language(
    line_comments=("--",), block_comments=(("{-", "-}"),), strings='"', opener=r"\b(?:do|of|where|let)|="
)
_MARKUP = Language(
    line_comments=(r"(?<![\w:])//",),
    block_comments=(("<!--", "-->"), ("/*", "*/")),
    strings='"',
    long_strings=("`",),
    opener=r"\{|<(?!/)[A-Za-z][^<>]*(?<!/)>",
    ends=r"</[A-Za-z][\w.:-]*>",
)
_LISP = Language(line_comments=(";",), strings='"', opener=r"(?!)")
_TEX = Language(line_comments=(r"(?<!\\)%",), strings="", opener=r"\{|\\begin\{[^}]*\}", prose=True)
_PROSE = Language(block_comments=(("<!--", "-->"),), strings="", opener=r"(?!)", prose=True)
_OTHER = Language(line_comments=("//", r"(?<!\S)#"), block_comments=(("/*", "*/"),), opener=r"\{|:")

_FAMILIES: tuple[tuple[Language, str], ...] = (
    (
        _C,
        "c cpp csharp cuda-cpp dart fsharp glsl groovy hlsl java kotlin objective-c "
        "objective-cpp proto proto3 scala solidity swift verilog systemverilog wgsl zig css less scss",
    ),
    (_SCRIPT, "javascript javascriptreact typescript typescriptreact"),
    (_GO, "go"),
    (_RUST, "rust"),
    (_PHP, "php"),
    (_PYTHON, "python cython starlark gdscript mojo"),
    (
        _HASH,
        "shellscript sh bash zsh fish perl r cmake dockerfile toml ini properties elixir julia "
        "nix tcl terraform hcl powershell awk",
    ),
    (_MAKE, "make makefile"),
    (_JSON, "json jsonc json5"),
    (_RUBY, "ruby crystal"),
    (_YAML, "yaml yml dockercompose"),
    (_SQL, "sql plsql postgres mysql tsql"),
    (_LUA, "lua"),
    (_HASKELL, "haskell elm purescript"),
    (_MARKUP, "html xml vue svelte astro handlebars xsl svg django-html jinja-html"),
    (_LISP, "lisp commonlisp clojure scheme racket elisp emacs-lisp"),
    (_TEX, "latex tex bibtex"),
    (
        _PROSE,
        "markdown mdx plaintext text restructuredtext asciidoc org typst git-commit gitcommit git-rebase",
    ),
)
_BY_ID = {name: language for language, names in _FAMILIES for name in names.split()}


def language(identifier: str) -> Language:
    """What is known of an LSP language id; a careful guess for one never heard of."""
    return _BY_ID.get(identifier.lower(), _OTHER)


@cache
def ending(pattern: str) -> re.Pattern[str]:
    """`pattern` at a line's end, blanks ignored."""
    return re.compile(rf"(?:{pattern})\s*$", re.IGNORECASE)


@cache
def top(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)^(?:{pattern})")


def opens_bracket(line: str) -> bool:
    return line.rstrip().endswith(("(", "[", "{"))


@cache
def _beginning(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{pattern})", re.IGNORECASE)


def goes_on(identifier: str, line: str) -> bool:
    """`else`, `} catch (e) {`, `elif …`: the line goes on with the statement whose block it ends."""
    return _beginning(language(identifier).goes_on).match(line) is not None


def closes(identifier: str, line: str) -> bool:
    """The line begins with a closing bracket, or is a word that closes a block."""
    stripped = line.strip()
    return stripped[:1] in tuple(CLOSERS) or (
        bool(stripped) and _beginning(language(identifier).ends).match(stripped) is not None
    )
