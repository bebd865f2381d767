"""Tokens in, tokens out. Knows no text, no file, no LSP: ids, masks and numbers only."""
