from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copilotd.completion.window import (
    at_line_start,
    fitting_end,
    fitting_start,
    line_end,
    lines_above,
    lines_below,
    unix,
)

TEXTS = st.text(alphabet="ab \t\r\né́🧪x;", max_size=60)


def count(text: str) -> int:
    return len(text.encode())


@given(TEXTS, st.integers(0, 60), st.integers(1, 30))
def test_lines_above_join_to_the_text_before(text: str, end: int, limit: int) -> None:
    end = min(end, len(text))
    spans = lines_above(text, end, limit)
    joined = "".join(text[low:high] for low, high in spans)
    assert text[:end].endswith(joined)
    assert len(joined) <= limit
    if len(spans) > 1:
        assert all(at_line_start(text, low) for low, _ in spans[1:])
        assert at_line_start(text, spans[0][0])


@given(TEXTS, st.integers(0, 60), st.integers(1, 30))
def test_lines_below_join_to_the_text_after(text: str, start: int, limit: int) -> None:
    start = min(start, len(text))
    spans = lines_below(text, start, limit)
    joined = "".join(text[low:high] for low, high in spans)
    assert text[start:].startswith(joined)
    if len(spans) > 1 and spans[-1][1] < len(text):
        assert at_line_start(text, spans[-1][1])


@given(TEXTS, st.integers(0, 60), st.integers(0, 40))
def test_windows_fit_and_are_cut_at_line_starts(text: str, cursor: int, budget: int) -> None:
    cursor = min(cursor, len(text))
    above, below = lines_above(text, cursor, 100), lines_below(text, cursor, 100)
    if above:
        start = fitting_start(text, above, budget, count)
        assert count(unix(text[start:cursor])) <= budget
        whole = {low for low, _ in above} | {cursor}
        assert start in whole or start > above[-1][0], "cut within a line that is not the nearest"
    if below:
        end = fitting_end(text, below, budget, count)
        assert count(unix(text[cursor:end])) <= budget
        whole = {high for _, high in below} | {cursor}
        assert end in whole or end < below[0][1]


def test_a_line_that_does_not_fit_is_cut_within_itself() -> None:
    text = "x" * 1000
    assert 1 <= 1000 - fitting_start(text, [(0, 1000)], 100, count) <= 100
    assert 1 <= fitting_end(text, [(0, 1000)], 100, count) <= 100


def test_no_cut_where_normalising_would_join() -> None:
    for joined in ("e\u0301", "a\u0323\u0302", "\u1100\u1161"):
        text = joined * 50
        for budget in range(1, 30):
            start = fitting_start(text, [(0, len(text))], budget, count)
            end = fitting_end(text, [(0, len(text))], budget, count)
            assert start == len(text) or text[start] == joined[0]
            assert end == 0 or text[end] == joined[0]


def test_unix_line_ends() -> None:
    assert unix("a\r\nb\rc\nd") == "a\nb\nc\nd"
    assert unix("a\u2028b\x0cc") == "a\u2028b\x0cc"


def test_line_end_of_a_document() -> None:
    assert line_end("a\r\nb", 3) == "\r\n"
    assert line_end("a\nb", 3) == "\n"
    assert line_end("a\rb", 3) == "\r"
    assert line_end("", 0) == "\n"
