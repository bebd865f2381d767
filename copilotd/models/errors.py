"""What can go wrong with a model's files."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be used. The message names the file or the shortage, and what a person can do."""
