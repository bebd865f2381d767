"""What was found, as text for a terminal and as the README's Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peers.decoding import Found, Row
from peers.sessions import Session, quantile


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def decoding(found: Found, shape: str) -> str:
    """One line per contender: tokens/s by kind, tokens per step, prefill, memory."""
    kinds = list(dict.fromkeys(row.kind for row in found.rows))
    contenders = list(dict.fromkeys(row.contender for row in found.rows))
    header = [
        f"{shape} shape",
        *(f"{kind}, tokens/s (per step)" for kind in kinds),
        "prefill, tokens/s",
        "memory, MB",
    ]
    lines = []
    for name in contenders:
        rows = [row for kind in kinds if (row := found.row(name, kind)) is not None]
        lines.append(
            [
                name,
                *(_speed(row) for row in rows),
                f"{max(row.prefill_per_s for row in rows):.0f}",
                f"{max(row.rss_mb for row in rows):.0f}",
            ]
        )
    return markdown(header, lines)


def _speed(row: Row) -> str:
    per_step = row.tokens_per_step
    return f"{row.tokens_per_s:.1f}" + (f" ({per_step:.2f})" if per_step is not None else "")


def ratios(found: Found) -> list[str]:
    """The sentences that the goals are about."""
    kinds = list(dict.fromkeys(row.kind for row in found.rows))
    said = []
    for kind in kinds:
        rows = [row for row in found.rows if row.kind == kind and row.tokens_per_s]
        ours = {
            row.contender.rsplit(", ", 1)[-1]: row for row in rows if row.contender.startswith("copilotd")
        }
        if "plain" not in ours or "speculating" not in ours:
            continue
        plain, speculating = ours["plain"], ours["speculating"]
        same = all(a.ids == b.ids for a, b in zip(plain.runs, speculating.runs, strict=True))
        drafted = sum(run.drafted for run in speculating.runs)
        accepted = sum(run.accepted for run in speculating.runs)
        said.append(
            f"{kind}: speculating {speculating.tokens_per_s / plain.tokens_per_s:.2f}x plain, "
            f"acceptance {accepted / drafted if drafted else 0.0:.2f}, the same text: {'yes' if same else 'NO'}"
        )
        pairs = sorted(
            _ms_per_token(b) / _ms_per_token(a)
            for a, b in zip(plain.runs, speculating.runs, strict=True)
            if a.timed and b.timed
        )
        if pairs:
            said.append(
                f"{kind}: time per token, speculating / plain, of {len(pairs)} pairs: "
                f"median {pairs[len(pairs) // 2]:.2f}, worst {pairs[-1]:.2f}"
            )
        if echo := ours.get("with an earlier answer"):
            said.append(f"{kind}: the same again, {echo.tokens_per_s / plain.tokens_per_s:.2f}x plain")
        counted = sum(run.counted_ms for run in speculating.runs)
        if counted:
            bound = counted / sum(run.plain_ms for run in speculating.runs)
            said.append(f"{kind}: counted steps at their calibrated cost, speculating / plain: {bound:.2f}")
        for label, mine, theirs in (
            ("plain / llama.cpp's Q4_0 plain", plain, _best(rows, "llama.cpp Q4_0, plain")),
            ("speculating / llama.cpp's best", speculating, _best(rows, "llama.cpp")),
            ("speculating / transformers' best assisted", speculating, _best(rows, "transformers", "plain")),
        ):
            if theirs is not None:
                said.append(
                    f"{kind}: {label} ({theirs.contender}): {mine.tokens_per_s / theirs.tokens_per_s:.2f}x"
                )
    about = found.about
    if about:
        rates = [row.tokens_per_s for row in found.rows if row.contender == f"{about['name']}, plain"]
        share = about["bytes_per_token"] * max(rates, default=0.0) / about["bandwidth"]
        said.append(
            f"plain reads {about['bytes_per_token'] / 1e6:.0f} MB of weights a token: {share:.0%} of the "
            f"{about['bandwidth'] / 1e9:.1f} GB/s this machine reads; free drafts would give {about['ceiling']:.2f}x"
        )
    return said


def _ms_per_token(run: object) -> float:
    return run.decode_ms / run.timed


def _best(rows: list[Row], start: str, without: str = "\0") -> Row | None:
    theirs = [row for row in rows if row.contender.startswith(start) and without not in row.contender]
    return max(theirs, key=lambda row: row.tokens_per_s, default=None)


def sessions(found: Sequence[Session], shape: str) -> str:
    """One line per contender: what a typist waited for."""
    header = [
        f"{shape} shape", "keys", "typed through", "first line p50, ms", "p95, ms", "answers",
        "any key to ghost p50", "p95", "never", "memory, MB",
    ]  # fmt: skip
    lines = []
    for name in dict.fromkeys(session.contender for session in found):
        mine = [session for session in found if session.contender == name]
        strokes = [stroke for session in mine for stroke in session.strokes]
        asked = lines_ms(found, name)
        ghosts = [ms for session in mine for ms in session.ghosts_ms]
        lines.append(
            [
                name, str(len(strokes)), str(sum(s.typed_through for s in strokes)),
                f"{quantile(asked, 0.5):.0f}", f"{quantile(asked, 0.95):.0f}", str(len(asked)),
                f"{quantile(ghosts, 0.5):.0f}", f"{quantile(ghosts, 0.95):.0f}",
                str(sum(s.ms is None for s in strokes)), f"{max(s.rss_mb for s in mine):.0f}",
            ]
        )  # fmt: skip
    return markdown(header, lines)


def lines_ms(found: Sequence[Session], contender: str) -> list[float]:
    return [ms for session in found if session.contender == contender for ms in session.lines_ms]


def session_ratios(found: Sequence[Session]) -> list[str]:
    """The first contender's times to the first complete line as parts of the others'."""
    names = list(dict.fromkeys(session.contender for session in found))
    said = []
    mine = lines_ms(found, names[0])
    for name in names[1:]:
        theirs = lines_ms(found, name)
        if mine and theirs:
            parts = [
                f"p{share * 100:.0f} {quantile(mine, share) / quantile(theirs, share):.2f}"
                for share in (0.5, 0.95)
            ]
            said.append(f"{names[0]} / {name}, first line: {', '.join(parts)}")
        pairs = [
            (a.ms, b.ms)
            for ours, others in zip(_of(found, names[0]), _of(found, name), strict=True)
            for a, b in zip(ours.strokes, others.strokes, strict=True)
            if a.line and a.line == b.line and a.asked and b.asked and a.ms is not None and b.ms is not None
        ]
        if pairs:
            ours_ms, others_ms = [a for a, _ in pairs], [b for _, b in pairs]
            said.append(
                f"  the same line from both at {len(pairs)} keys: p50 {quantile(ours_ms, 0.5):.0f} and "
                f"{quantile(others_ms, 0.5):.0f} ms, p95 {quantile(ours_ms, 0.95):.0f} and {quantile(others_ms, 0.95):.0f} ms"
            )
    return said


def _of(found: Sequence[Session], contender: str) -> list[Session]:
    return [session for session in found if session.contender == contender]
