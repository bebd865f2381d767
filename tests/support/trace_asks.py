"""What the completer is asked in a recorded session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from copilotd.completion.ask import Ask
from copilotd.config import SessionSettings
from copilotd.replay.buffer import Buffer
from copilotd.replay.languages import language_id
from copilotd.replay.trace import Trace


def asks(trace: Trace) -> Iterator[Ask]:
    """Each request on the text that was there then, without a deadline."""
    buffers: dict[str, Buffer] = {}
    for event in trace.events:
        if event.open is not None:
            buffers[event.open] = Buffer(trace.files.get(event.open, ""))
        elif event.change is not None:
            buffers[event.change].apply(event.edits)
        elif event.complete is not None and event.at is not None:
            buffer = buffers[event.complete]
            yield Ask(
                client="a",
                uri=f"file:///w/{event.complete}",
                language=language_id(Path(event.complete)),
                path=event.complete,
                repository="w",
                text=buffer.text,
                offset=buffer.offset(event.at),
                settings=SessionSettings(max_latency_ms=0),
            )
