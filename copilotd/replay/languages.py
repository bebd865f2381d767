"""LSP language ids by a file's ending, where no editor says them."""

from __future__ import annotations

from pathlib import Path

_ENDINGS = """
c c h; clojure clj; cpp cc cpp cxx hpp; csharp cs; css css; dart dart; elixir ex exs; go go; haskell hs; html html htm;
java java; javascript js mjs cjs; javascriptreact jsx; json json; julia jl; kotlin kt; latex tex; lua lua; markdown md;
php php; python py pyi; r r; ruby rb; rust rs; scala scala; scss scss; shellscript sh bash; sql sql; svelte svelte;
swift swift; toml toml; typescript ts mts cts; typescriptreact tsx; vue vue; xml xml; yaml yaml yml; zig zig
"""
_IDS = {
    ending: name for name, *endings in (words.split() for words in _ENDINGS.split(";")) for ending in endings
}


def language_id(path: str | Path) -> str:
    return _IDS.get(Path(path).suffix[1:].lower(), "plaintext")
