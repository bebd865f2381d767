"""Change one line of a module for the length of a test, to see that the tests notice."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType


def code_by_name(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Qualified name and code of every function that a module's or class's body defines."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            if not constant.co_flags & inspect.CO_OPTIMIZED:  # a class body, whose methods count too
                yield from code_by_name(constant)


def functions(module: ModuleType) -> dict[str, FunctionType]:
    found: dict[str, FunctionType] = {}
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            function = inspect.unwrap(value)
            found[function.__qualname__] = function
        elif inspect.isclass(value):
            members = (inspect.unwrap(f) for f in vars(value).values() if isinstance(f, FunctionType))
            found |= {f.__qualname__: f for f in members if f.__module__ == module.__name__}
    return found


@contextmanager
def mutated(module: ModuleType, old: str, new: str) -> Iterator[None]:
    """Every reference to the functions sees the change: their code is exchanged, not they."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {module.__name__}"
    mutant = compile(source.replace(old, new), f"<mutant of {module.__name__}>", "exec", dont_inherit=True)
    codes = dict(code_by_name(mutant))
    originals = {name: function.__code__ for name, function in functions(module).items()}
    changed = 0
    for name, function in functions(module).items():
        if (
            codes[name].co_code != originals[name].co_code
            or codes[name].co_consts != originals[name].co_consts
        ):
            changed += 1
        function.__code__ = codes[name]
    try:
        assert changed, "the mutation changes no function"
        yield
    finally:
        for name, function in functions(module).items():
            function.__code__ = originals[name]
