"""The page: one file, text never markup, nothing of the working directory."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from copilotd.replay.page import Bars, Plot, Section, Series, Table, distribution, page


def example(name: str = "one") -> str:
    return page(
        f"title {name}",
        [
            Section(
                f"section {name}",
                [
                    Plot(f"plot {name}", "ms", "share", [Series(name, [1, 2, 9], [0.1, 0.5, 1])], log_x=True),
                    Plot("a point", "x", "y", [Series("a", [1], [1]), Series(name, [], [])], steps=True),
                    Bars(f"bars {name}", "ms", [name, "two"], {"p50": [1, 2], name: [3, 4]}),
                    Bars("stacked", "ms", ["one"], {"a": [1], "b": [2]}, stacked=True),
                    Table(f"table {name}", ["what", name], [[name, 1234567], [None, 12.3456]]),
                ],
                f"note {name}",
            )
        ],
        f"in all {name}",
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [
            value
            for key, value in attrs
            if value and key in ("src", "href", "xlink:href") and not value.startswith("#")
        ]
        if tag not in ("meta", "path", "use", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def test_one_file_with_every_plot_and_no_reference_elsewhere() -> None:
    tags = Tags()
    tags.feed(example())
    assert tags.open == []
    assert tags.seen.count("svg") == 4
    assert tags.seen.count("table") == 1
    assert "script" not in tags.seen
    assert tags.addresses == []
    assert "1,234,567" in example()
    assert "12.35" in example()


def test_what_is_given_is_text() -> None:
    text = example("<script>x</script> $\\frac{1}{2}$ & \"'")
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") >= 10
    assert r"\frac{1}{2}" in text  # no formula was set


def test_the_same_figures_give_the_same_page() -> None:
    assert example() == example()


def test_a_distribution_is_the_share_that_is_at_most_x() -> None:
    assert distribution([3, 1, 2, 2]) == ([1, 2, 2, 3], [0.25, 0.5, 0.75, 1.0])
    assert distribution([]) == ([], [])


def test_a_workspace_has_no_say_in_how_plots_look(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: ff00ff\nlines.linewidth: 40\nno.such.key: 1\n")
    code = (
        "from copilotd.replay.page import *\n"
        "print(page('t', [Section('s', [Plot('p', 'x', 'y', [Series('a', [1, 2], [1, 2])])])]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "<svg" in done.stdout
    assert done.stderr == ""  # matplotlib names a key it does not know
    assert "ff00ff" not in done.stdout
    assert not re.search(r"stroke-width: 40\b", done.stdout)


def test_without_matplotlib_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from copilotd.replay.page import PageError, available\n"
        "try: available()\n"
        "except PageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert "pip install matplotlib" in done.stdout


@pytest.mark.parametrize("cell", ["", 0, 0.0, None])
def test_cells_that_say_nothing(cell: str | float | None) -> None:
    assert "<td" in page("t", [Section("s", [Table("x", ["a"], [[cell]])])])
