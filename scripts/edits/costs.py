"""What the index costs: bytes a token, a lookup, a replaced file."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import numpy as np

import copilotd
from copilotd.context.index import MAX_TOKENS, IndexReader, IndexWriter, View, allocate
from copilotd.context.messages import Begin, Buffer
from copilotd.context.service import Service
from copilotd.models.tokenizer import TokenizerVocabulary

FILE_TOKENS = 2_000
LOOKUPS = 4_000
REPLACED = 20
ROOM = 800_000
"""tokens left free for the file that is replaced again and again"""


def measure(vocabulary: TokenizerVocabulary) -> Iterator[str]:
    """A full index of made-up files that repeat each other, so that every chain is long."""
    chance = random.Random(1)
    law = np.random.default_rng(1)
    phrases = [law.integers(0, vocabulary.size, size=chance.randrange(4, 40)) for _ in range(20_000)]
    descriptor = allocate()
    writer, reader = IndexWriter(descriptor), IndexReader(descriptor)
    files: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    while writer.tokens + FILE_TOKENS <= MAX_TOKENS - ROOM:
        parts: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
        while sum(map(len, parts)) < FILE_TOKENS:
            parts.append(phrases[min(int(chance.expovariate(1 / 2000)), len(phrases) - 1)])
        ids = np.concatenate(parts)[:FILE_TOKENS]
        files.append(ids)
        writer.add(ids.astype(np.int32), language=chance.randrange(4))
    size = os.fstat(descriptor).st_size
    yield f"index: {writer.tokens} tokens, {size / writer.tokens:.1f} bytes a token (at most 24)"
    took = []
    for _ in range(LOOKUPS):
        ids = chance.choice(files)
        at = chance.randrange(32, len(ids))
        tail = [int(token) for token in ids[at - 32 : at]]
        if chance.random() < 0.3:
            tail[-6] = (tail[-6] + 1) % vocabulary.size
        started = time.perf_counter()
        reader.find(tail, 8, View(), chance.randrange(4))
        took.append((time.perf_counter() - started) * 1e3)
    cuts = quantiles(took, n=100)
    yield f"lookup: {median(took):.3f} ms median, {cuts[94]:.3f} ms p95 (at most 0.2), {cuts[98]:.3f} ms p99"
    yield from _replaced(descriptor, vocabulary)
    writer.close()
    reader.close()
    os.close(descriptor)


def _replaced(descriptor: int, vocabulary: TokenizerVocabulary) -> Iterator[str]:
    """An open buffer of 1,000 lines, real ones, told anew: tokens, places of definitions, recent edits."""
    package = Path(copilotd.__file__).parent
    lines = [line for path in sorted(package.rglob("*.py")) for line in path.read_text().split("\n")][:1000]
    service = Service(Begin(""), IndexWriter(descriptor), vocabulary.encode)
    took = []
    for i in range(REPLACED):
        lines[500] = f"    changed = {i}"
        started = time.perf_counter()
        service.handle(Buffer("c", "/bench/a.py", "python", "\n".join(lines)))
        took.append((time.perf_counter() - started) * 1e3)
    service.close()
    yield f"a buffer of 1,000 lines replaced: {median(took):.1f} ms median, {max(took):.1f} ms most (at most 20)"
