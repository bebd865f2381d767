"""Names defined, by language, and the snippet shown for one."""

from __future__ import annotations

import pytest

from copilotd.context.definitions import definitions, snippet


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("class A(B):\n    async def run(self):\n        if x(y):\n            pass\n", ["A", "run"]),
        (
            "export default class Foo extends Bar {\n  private async load(id: string): Promise<void> {\n",
            ["Foo", "load"],
        ),
        ("export const add = (a: number, b: number) => a + b;\nconst total = 3;\n", ["add"]),
        ("interface Shape {\n}\ntype Id = string;\nenum Kind {\n}\n", ["Shape", "Id", "Kind"]),
        (
            "  public static List<String> names(int a) {\n    for (int i = 0; i < a; i++) {\n    }\n",
            ["names"],
        ),
        ("create or replace view sales.totals as\nCREATE TABLE IF NOT EXISTS users (\n", ["totals", "users"]),
        ("{% macro default__type(x) %}\n", ["default__type"]),
        ("func (s *Store) Get(k string) string {\n", ["Get"]),
        ("pub(crate) fn parse<T>(s: &str) -> T {\nimpl Parser {\n", ["parse", "Parser"]),
        ("static int count_all(struct node *n) {\n  while (n) {\n", ["count_all"]),
        ("return call(x) {\n} else if (y) {\n", []),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    assert [name for name, _ in definitions(text)] == names


def test_a_snippet_ends_with_its_block() -> None:
    text = "x = 1\nfunction f(a) {\n  return a;\n}\nfunction g() {}\n"
    assert snippet(text, text.index("function f")) == "function f(a) {\n  return a;\n}"
    long = "def f():\n" + "    x = 1\n" * 40
    assert snippet(long, 0).count("\n") == 11
