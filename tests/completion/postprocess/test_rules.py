"""Each rule by itself: what it makes of a text, why, and what it leaves alone."""

from __future__ import annotations

import pytest

from copilotd.completion import postprocess
from copilotd.completion.postprocess import RULES, Context


def at(document: str, language: str = "python", **more: object) -> Context:
    before, _, after = document.partition("‸")
    return Context(before=before, after=after, language=language, **more)  # type: ignore[arg-type]


def kept(rule: str, context: Context, text: str) -> str:
    change = RULES[rule](context, text)
    assert change is None or (change.reason and change.text != text)
    return text if change is None else change.text


def test_reasons_name_the_rule() -> None:
    result = postprocess.apply(at("f(‸)\n", scope="line"), "x)<|endoftext|>")
    assert result.text == "x"
    assert [applied.rule for applied in result.applied] == ["markers", "overlap"]
    assert all(applied.reason for applied in result.applied)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", ["x", "return x + 1", "foo(bar)"])
def test_a_text_that_is_fine_is_left_alone(rule: str, text: str) -> None:
    assert RULES[rule](at("def f(x):\n    ‸\n"), text) is None


@pytest.mark.parametrize(
    ("rule", "document", "says", "wanted"),
    [
        ("characters", "‸", "a\r\nb\rc", "a\nb\nc"),
        ("characters", "‸", "ab\ud83d", "ab"),
        ("characters", "‸", "urn \x9d", "urn "),
        ("characters", "‸", "a\u2028b", "a"),
        ("markers", "‸", "<|fim_middle|><|fim_middle|>a<|file_sep|>b", "a"),
        ("markers", "‸", "a <|fi", "a "),
        ("markers", "‸", "a <| b", "a <| b"),
        ("fence", "‸", "a\n```\nb", "a"),
        ("fence", "x = ‸", "```a", "```a"),
        ("leading", "x\n\n‸\n", "\n\n\n\ny", "\ny"),
        ("leading", "‸", "\n\n\n\ny", "y"),
        ("trailing", "x = ‸\n", "1 \n\n", "1"),
        ("trailing", "    ‸foo()\n", "bar()\n", "bar()\n    "),
        ("trailing", "f() {‸}\n", "\n    x;", "\n    x;\n"),
        ("trailing", "x‸", " \n ", ""),
        ("echo", "a()\nb()\n‸\n", "a()\nb()", ""),
        ("echo", "a()\nb()\n‸\n", "b()\na()", "b()\na()"),
        ("echo", "}\n‸", "}", "}"),
        ("repetition", "a()\n‸", "a()\na()\n", ""),
        ("repetition", "‸", "a()\n\na()\n\na()\n", "a()"),
        ("repetition", "‸", "0\n0\n0\n0\n", "0\n0\n0\n0\n"),
        ("repetition", "‸", "x = " + "ab, " * 30, "x = ab,"),
        ("following", "a()\n‸\nb()\n", "c()\nb()\nd()", "c()"),
        ("following", "a()\n‸\n\n\nb()\n", "c()\n\nb()  ", "c()"),
        ("following", "if a:\n    ‸\nb()\n", "c()\n    b()", "c()\n    b()"),
        ("closers_below", "f(\n    g‸\n)\n", "(1))", "(1)"),
        ("closers_below", "f(\n    g(‸\n)\n", "1)", "1)"),
        ("block", "def f():\n    ‸\n", "a\n    b\nc", "a\n    b"),
        ("block", "def f():\n    ‸\n", "a\n\n    b\n", "a\n\n    b\n"),
        ("block", "a\n‸\n", "b\n\nc\n", "b"),
        ("overlap", "f(‸)\n", "a)", "a"),
        ("overlap", "f(g(‸)\n", "a)", "a)"),
        ("overlap", "f(g(‸)\n", "a))", "a)"),
        ("overlap", "x = [‸]\n", "[1]", "[1]"),
        ("overlap", 'f("‸")\n', 'a")', "a"),
        ("overlap", "f(‸, b)\n", "a, b)", "a"),
        ("overlap", "conf‸ig = 1\n", "ig = 2", ""),
        ("overlap", "foo(‸bar)\n", "b", "b"),
        ("indent.first_line", "def f():\n    ‸\n", "    a", "a"),
        ("indent.first_line", "    a\n    ‸\n", "\n    b", "b"),
        ("indent.first_line", "if a:\n    if b:\n    ‸\n", "    c", "    c"),
        ("indent.first_line", "def f():\n‸\n", "a", "    a"),
        ("indent.first_line", "a = ‸\n", " 1", "1"),
        ("indent.unit", "if a:\n\tb\n\t‸\n", "c:\n    d\n        e", "c:\n\t\td\n\t\t\te"),
        ("indent.unit", "if a:\n  b\n  ‸\n", "c:\n\t\td", "c:\n    d"),
        ("indent.unit", "if a:\n  b\n  ‸\n", "c(1,\n     2)", "c(1,\n     2)"),
        ("indent.unit", "a\n  b\n\tc\n  d\n\te\n‸", "f:\n    g", "f:\n    g"),
        ("long", "‸", "a\n" + "x" * 300 + "\nb", "a"),
        ("long", "‸", "a " * 200, "a " * 119 + "a"),
        ("long", "‸", "a\n" * 60, "a\n" * 39 + "a"),
    ],
)
def test_what_a_rule_makes_of_a_text(rule: str, document: str, says: str, wanted: str) -> None:
    assert kept(rule, at(document), says) == wanted


@pytest.mark.parametrize(
    ("document", "says", "wanted"),
    [
        ("x = ‸\n", "1\ny = 2", "1"),
        ("x = 1‸\n", "\ny = 2\nz = 3", "\ny = 2"),
        ("f(‸)\n", "\n  x", ""),
        ("    ‸f()\n", "g()\nh()\n", "g()\n"),
    ],
)
def test_one_line(document: str, says: str, wanted: str) -> None:
    assert kept("one_line", at(document, scope="line"), says) == wanted
    assert RULES["one_line"](at(document, scope="block"), says) is None


def test_going_on_past_a_closer_covers_the_rest_of_the_line() -> None:
    change = RULES["overlap"](at("f(‸);\n", "typescript"), "a).b")
    assert change is not None
    assert (change.text, change.covers) == ("a).b;", 2)


def test_what_is_covered_holds_closers_only() -> None:
    change = RULES["overlap"](at("f(‸) + g()\n"), "a).b")
    assert change is None or change.covers == 0


def test_the_popup_shows_only_what_extends_its_entry() -> None:
    place = at("import pa‸\n", selected="ndas")
    assert kept("popup", place, "ndas as pd") == "ndas as pd"
    assert kept("popup", place, "ndas") == ""
    assert kept("popup", place, "thlib") == ""


def test_the_editors_word_counts_only_where_the_file_shows_nothing() -> None:
    says = "a\n    b"
    assert kept("indent.unit", at("f\n‸\n", insert_spaces=False), says) == "a\n\tb"
    assert kept("indent.unit", at("f\n    g\n‸\n", insert_spaces=False), says) == says
    tabs = "a\n\tb"
    assert kept("indent.unit", at("f\n‸\n", insert_spaces=True, tab_size=2), tabs) == "a\n  b"
    assert kept("indent.unit", at("f\n‸\n"), tabs) == tabs
    assert kept("indent.unit", at("f\n‸\n", "go"), says) == "a\n\tb"


def test_far_down_in_a_file_a_function_begins_with_nothing_open() -> None:
    """The window of brackets begins within the file; a closer too many is still one."""
    above = "def before():\n    return 1\n\n\n" * 600
    place = at(f"{above}def test():\n    assert f((a, b), (c, ‸))\n", scope="line")
    result = postprocess.apply(place, "1)*x,")
    assert result.text == "1)*x,)"
    assert result.covers == 2
