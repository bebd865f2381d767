"""What holds for any document, any cursor and any text of the model."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from copilotd.completion import postprocess
from copilotd.completion.postprocess import Context, Result
from copilotd.completion.postprocess.sure import whole_lines
from copilotd.config import SessionSettings

LANGUAGES = (
    "python",
    "typescript",
    "typescriptreact",
    "go",
    "rust",
    "c",
    "sql",
    "yaml",
    "markdown",
    "vue",
    "html",
)
LANGUAGES += ("ruby", "shellscript", "json", "nobody-knows", "")
PIECES = (
    "if x:", "else:", "} else {", "{", "}", "(", ")", "[", "]", ");", '"', "'", "`", '"""', "'''", "//", "#", "--",
    "/*", "*/", "<!--", "-->", "</p>", "<p>", "return x", "foo(bar)", "x = 1", "end", "\t", "    ", "  ", " ", "\n",
    "\n\n", ";", ",", ":", "=>", "é", "é", "😀", "👩‍👩‍👧", "你好", "\u2028", "\f", "\\", "\\n", "$", "${", "<", "|",
)  # fmt: skip
RAW = (
    "<|endoftext|>", "<|fim_middle|>", "<file_sep>", "<|fim_", "\r\n", "\r", "\ud83d", "\ufffd", "\x00", "\ufeff",
    "```", "\u200d",
)  # fmt: skip
MARKER = re.compile(r"<\|(?:endoftext|fim_\w+)\|>|<file_sep>")

code = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
says = st.lists(st.sampled_from(PIECES + RAW), min_size=1, max_size=30).map("".join)
any_text = st.text(max_size=60)
sessions = st.builds(
    SessionSettings,
    multiline=st.sampled_from(("auto", "never", "always")),
    comments=st.sampled_from(("off", "line", "on")),
)


@st.composite
def places(draw: st.DrawFn) -> Context:
    text = st.one_of(code, any_text.map(lambda text: text.replace("\r", "")))
    context = Context(
        before=draw(text),
        after=draw(text),
        language=draw(st.sampled_from(LANGUAGES)),
        tab_size=draw(st.sampled_from((None, 2, 4, 8))),
        insert_spaces=draw(st.sampled_from((None, True, False))),
    )
    return replace(context, scope=postprocess.scope(context, draw(sessions)))


many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _parts(context: Context, result: Result) -> list[tuple[str, int]]:
    """The item as an editor shows it: ghost text, each with how much standing text comes before it."""
    covered = context.after[: result.covers]
    parts, at, begin = [], 0, 0
    for place, character in enumerate(result.text):
        if at < len(covered) and character == covered[at] and _fits(result.text[place:], covered[at:]):
            parts.append((result.text[begin:place], at))
            at, begin = at + 1, place + 1
    return [*parts, (result.text[begin:], at)]


def _fits(whole: str, part: str) -> bool:
    rest = iter(whole)
    return all(character in rest for character in part)


@many
@given(places(), st.one_of(says, any_text), st.none() | st.integers(0, 60))
def test_the_old_text_stays_and_nothing_bad_comes(context: Context, text: str, doubt: int | None) -> None:
    sure = None if doubt is None else whole_lines(text, doubt)
    result = postprocess.apply(replace(context, sure=sure), text)
    assert "\r" not in result.text
    assert not MARKER.search(result.text)
    assert "\ufffd" not in result.text
    result.text.encode()  # no half surrogate
    covered = context.after[: result.covers]
    assert "\n" not in covered
    assert _fits(result.text, covered)
    assert bool(result.text) == bool(result.text.strip())
    if not result.text:
        assert result.covers == 0


@many
@given(places(), says)
def test_one_line_where_one_line_is_wanted(context: Context, text: str) -> None:
    result = postprocess.apply(replace(context, scope="line"), text)
    assert "\n" not in result.text.strip("\n ").replace(context.tail, "")


@many
@given(places(), says)
def test_word_by_word_or_line_by_line_ends_in_the_same_text(context: Context, text: str) -> None:
    result = postprocess.apply(context, text)
    at_once = context.before + result.text + context.after[result.covers :]
    for pattern in (r"\s*\w+|\s*[^\w\s]+|\s+", r"[^\n]*\n|[^\n]+"):
        document, cursor, taken = context.before, 0, ""
        for ghost, standing in _parts(context, result):
            document += context.after[cursor:standing]
            cursor = standing
            for step in re.findall(pattern, ghost):
                document += step
                taken += step
        assert document + context.after[cursor:] == at_once


@many
@example(Context(before="", after="", language="python", scope="line"), "\ufeff\r\nif x:")
@given(places(), says)
def test_what_is_enough_is_all_that_would_be_shown(context: Context, text: str) -> None:
    """Stopping where `enough` says so shows no less than letting the model go on."""
    for end in range(1, len(text)):
        if postprocess.enough(context, text[:end]):
            early, whole = postprocess.apply(context, text[:end]), postprocess.apply(context, text)
            assert early.text.startswith(whole.text.rstrip()), (early, whole)
            break


@many
@given(places(), says, st.integers(0, 60))
def test_doubts_end_the_decoding_no_earlier_than_what_is_shown(
    context: Context, text: str, doubt: int
) -> None:
    def doubtful(written: str) -> Context:
        return replace(context, sure=whole_lines(written, doubt) if doubt < len(written) else None)

    whole = postprocess.apply(doubtful(text), text)
    for end in range(1, len(text)):
        if postprocess.enough(doubtful(text[:end]), text[:end]):
            early = postprocess.apply(doubtful(text[:end]), text[:end])
            assert early.text.startswith(whole.text.rstrip()), (early, whole)
            break


@many
@given(places(), st.lists(says, min_size=1, max_size=4))
def test_enough_never_takes_it_back(context: Context, rounds: list[str]) -> None:
    """Once a text is enough, more of it is enough too (but for a marker, which may turn out to be none)."""
    texts = ["".join(rounds[:count]) for count in range(1, len(rounds) + 1)]
    answers = [postprocess.enough(context, text) for text in texts]
    assert all(isinstance(answer, bool) for answer in answers)
    if context.scope == "line":
        assert all(later for earlier, later in pairwise(answers) if earlier)
