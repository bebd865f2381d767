"""One self-contained web page of plots and tables: no script, nothing fetched, readable from a mail.

    page("title", [Section("heading", [Plot("what", "ms", "share", [Series("a", xs, ys)])])])

Plots are drawn by matplotlib (the extra `report`) as SVG inside the page; its text stays text.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (7.2, 3.2)
BARS_INCH = 0.42
"""height of one bar with its gap"""
COLOURS = ("#2f6fb2", "#d9792b", "#3c9a5f", "#a64ca6", "#c0393b", "#7a7a7a", "#b8a11f", "#4aa8b5")

Cell: TypeAlias = str | int | float | None


class PageError(Exception):
    """No page can be drawn. The message says what to install."""


class Series(Struct, frozen=True):
    """One line of a plot; `x` and `y` of one length."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Plot(Struct, frozen=True):
    """Lines over a common x axis."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    steps: bool = False
    """y holds from its x until the next one (distributions, counters)"""
    y_max: float | None = None


class Bars(Struct, frozen=True):
    """A horizontal bar a category; several series beside each other, or one after the other if stacked."""

    title: str
    x_label: str
    categories: Sequence[str]
    series: Mapping[str, Sequence[float]]
    """name -> a value for every category"""
    stacked: bool = False


class Table(Struct, frozen=True):
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


Part: TypeAlias = Plot | Bars | Table


class Section(Struct, frozen=True):
    title: str
    parts: Sequence[Part]
    note: str = ""


def available() -> None:
    """Raises PageError where plots cannot be drawn: to be asked before a long measurement, not after it."""
    _figure()


def page(title: str, sections: Sequence[Section], note: str = "") -> str:
    """The page as HTML. Everything given is text, never markup. Raises PageError without matplotlib."""
    body = [f"<h1>{escape(title)}</h1>", _paragraph(note)]
    for section in sections:
        body += [f"<section>\n<h2>{escape(section.title)}</h2>", _paragraph(section.note)]
        body += [_part(part) for part in section.parts]
        body.append("</section>")
    return _HTML.replace("TITLE", escape(title), 1) + "\n".join(filter(None, body)) + "\n</body>\n</html>\n"


def distribution(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """x and y of a `Plot` with steps: the share of the values that is at most x. Empty for no values."""
    ordered = sorted(values)
    return ordered, [(i + 1) / len(ordered) for i in range(len(ordered))]


def _part(part: Part) -> str:
    match part:
        case Table():
            return _table(part)
        case Plot():
            return _drawn(part.title, lambda axes: _lines(axes, part), SIZE_INCHES[1])
        case Bars():
            rows = len(part.categories) * (1 if part.stacked else max(1, len(part.series)))
            return _drawn(part.title, lambda axes: _bars(axes, part), 1.3 + BARS_INCH * rows)


def _drawn(title: str, draw: Callable[[Axes], None], height: float) -> str:
    figure = _figure()
    figure.set_size_inches(SIZE_INCHES[0], height)
    axes = figure.add_subplot()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        figure.legend(frameon=False, fontsize="small", loc="outside right upper")
    return f"<figure>\n<figcaption>{escape(title)}</figcaption>\n{_svg(figure)}</figure>"


def _lines(axes: Axes, plot: Plot) -> None:
    for series, colour in zip(plot.series, _colours(len(plot.series)), strict=True):
        style = "steps-post" if plot.steps else "default"
        # one point is a line without length
        marker = "o" if len(series.x) == 1 else None
        axes.plot(
            series.x,
            series.y,
            label=_plain(series.name),
            color=colour,
            drawstyle=style,
            marker=marker,
            linewidth=1.6,
        )
    if plot.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(_plain(plot.x_label))
    axes.set_ylabel(_plain(plot.y_label))
    axes.set_ylim(0, plot.y_max)
    axes.grid(alpha=0.25)


def _bars(axes: Axes, bars: Bars) -> None:
    places = list(range(len(bars.categories)))
    left = [0.0] * len(places)
    width = 0.8 if bars.stacked else 0.8 / max(1, len(bars.series))
    for number, ((name, values), colour) in enumerate(
        zip(bars.series.items(), _colours(len(bars.series)), strict=True)
    ):
        offset = 0.0 if bars.stacked else (number - (len(bars.series) - 1) / 2) * width
        axes.barh(
            [place + offset for place in places],
            values,
            width,
            left=left if bars.stacked else 0.0,
            label=_plain(name),
            color=colour,
        )
        if bars.stacked:
            left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(places, [_plain(category) for category in bars.categories])
    axes.invert_yaxis()
    axes.set_xlabel(_plain(bars.x_label))
    axes.grid(axis="x", alpha=0.25)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in table.rows)
    return (
        f"<figure>\n<figcaption>{escape(table.title)}</figcaption>\n<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</figure>"
    )


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return '<td class="number">–</td>'
        case str():
            return f"<td>{escape(cell)}</td>"
        case float() if abs(cell) < 1000:
            return f'<td class="number">{cell:.4g}</td>'
        case _:
            return f'<td class="number">{cell:,.0f}</td>'


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _plain(text: str) -> str:
    """matplotlib reads text between two dollars as a formula."""
    return text.replace("$", r"\$")


def _colours(number: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(number)]


def _figure() -> Figure:
    try:
        with contextlib.chdir(Path(__file__).parent):  # it would read a matplotlibrc of the working directory
            import matplotlib
            from matplotlib.figure import Figure
    except ImportError:
        raise PageError(
            "plots are drawn by matplotlib, which is not installed: python3 -m pip install matplotlib, "
            "into copilotd's environment"
        ) from None
    matplotlib.rcdefaults()
    return Figure(layout="constrained")


def _svg(figure: Figure) -> str:
    import matplotlib

    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "copilotd", "font.size": 9.0}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]


_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>TITLE</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
figure { margin: 1.2rem 0; overflow-x: auto; } figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { max-width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #eee; text-align: left; }
th { border-bottom-color: #999; } .number { text-align: right; }
</style>
</head>
<body>
"""
