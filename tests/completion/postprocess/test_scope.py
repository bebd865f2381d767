from __future__ import annotations

import pytest

from copilotd.completion.postprocess import Context, scope
from copilotd.config import SessionSettings


def at(document: str, language: str = "python", **settings: str) -> str:
    before, _, after = document.partition("‸")
    return scope(Context(before=before, after=after, language=language), SessionSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "language", "wanted"),
    [
        ("def f():\n    ‸\n", "python", "block"),
        ("def f():‸\n", "python", "block"),
        ("for x in xs:  # every one\n    ‸", "python", "block"),
        ("x = ‸\n", "python", "line"),
        ("foo(‸)\n", "python", "line"),
        ("foo(‸\n", "python", "line"),
        ("x = {‸}\n", "python", "line"),
        ("function f() {‸}\n", "typescript", "block"),
        ("app.get('/', () => {‸});\n", "typescript", "block"),
        ("const x: ‸\n", "typescript", "line"),
        ("case 1:‸\n", "c", "block"),
        ("import (‸\n)", "go", "block"),
        ("call(‸\n)", "go", "line"),
        ("env:‸\n", "yaml", "block"),
        ("name: ‸\n", "yaml", "line"),
        ("SELECT\n‸", "sql", "block"),
        ("<ul>‸\n</ul>", "html", "block"),
        ("<p>‸</p>", "html", "line"),
        ("def f‸\n", "ruby", "block"),
        ("xs.each do |x|‸\n", "ruby", "block"),
        ("for f in *; do‸\n", "shellscript", "block"),
        ("text\n\n‸\n", "markdown", "block"),
        ("some text‸\n", "markdown", "line"),
        ("‸", "", "block"),
    ],
)
def test_as_much_as_the_place_asks_for(document: str, language: str, wanted: str) -> None:
    assert at(document, language) == wanted


def test_multiline_never_and_always() -> None:
    assert at("def f():\n    ‸\n", multiline="never") == "line"
    assert at("x = ‸\n", multiline="always") == "block"


@pytest.mark.parametrize(
    ("document", "language"),
    [
        ("# a comment ‸\n", "python"),
        ("x = 1  # a comment ‸\n", "python"),
        ('def f():\n    """Return ‸\n', "python"),
        ('def f():\n    """Return ‸"""\n', "python"),
        ("// a comment ‸\n", "typescript"),
        ("/*\n * a comment ‸\n */\n", "java"),
        ("/// docs ‸\n", "rust"),
        ("-- a comment ‸\n", "sql"),
        ("<!-- a comment ‸ -->", "vue"),
        ("prose ‸", "markdown"),
        ("prose ‸", "plaintext"),
        ("# a comment ‸\n", "yaml"),
        ("; a comment ‸\n", "clojure"),
        ("-- a comment ‸", "lua"),
    ],
)
def test_comments_off_line_on(document: str, language: str) -> None:
    assert at(document, language, comments="off") == "none"
    assert at(document, language, comments="line", multiline="always") == "line"
    assert at(document, language, comments="on", multiline="always") == "block"


@pytest.mark.parametrize(
    ("document", "language"),
    [
        ('x = "# ‸"\n', "python"),
        ('x = "# ‸\n', "python"),
        ("# a comment\n‸\n", "python"),
        ('x = """\nSELECT ‸\n"""\n', "python"),
        ('const url = "https://‸"\n', "typescript"),
        ("const url = `https://‸`\n", "typescript"),
        ("/* done */ ‸\n", "c"),
        ("<a href=https://‸>", "html"),
        ("echo $#‸\n", "shellscript"),
        ("fn f<'a>(x: &'a str) { ‸ } // y\n", "rust"),
        ("color: '#‸'\n", "css"),
    ],
)
def test_what_is_no_comment(document: str, language: str) -> None:
    assert at(document, language, comments="off") != "none"


def test_a_window_that_begins_within_a_docstring() -> None:
    assert at('of the docstring.\n    """\n    if x:‸\n        y()\n') == "block"
