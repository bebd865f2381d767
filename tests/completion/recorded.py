"""Prompts as a backend has recorded them."""

from __future__ import annotations

from tests.support.scripted import ScriptedBackend


class Split:
    """A recorded prompt in its parts; asserts that the template stands once and in order."""

    def __init__(self, backend: ScriptedBackend) -> None:
        request, vocabulary = backend.requests[-1], backend.vocabulary
        prompt, fim = list(request.prompt), vocabulary.fim
        constraint = request.constraint
        self.needed: str = constraint.needed.decode() if constraint else ""  # type: ignore[attr-defined]
        assert prompt
        self.tokens = len(prompt)
        if fim is None:
            self.header, self.prefix, self.suffix = "", "", ""
            assert not vocabulary.control.intersection(prompt)
            self.typed = vocabulary.decode(prompt)
            return
        for marker in (fim.prefix, fim.suffix, fim.middle):
            assert prompt.count(marker) == 1
        first, second, third = (prompt.index(m) for m in (fim.prefix, fim.suffix, fim.middle))
        assert first < second < third
        parts = (
            prompt[:first],
            prompt[first + 1 : second],
            prompt[second + 1 : third],
            prompt[third + 1 :],
        )
        assert not any(vocabulary.control.intersection(part) for part in parts[1:])
        self.header, self.prefix, self.suffix, self.typed = map(vocabulary.decode, parts)
        self.header_ids = parts[0]

    @property
    def before(self) -> str:
        return self.prefix + self.typed + self.needed
