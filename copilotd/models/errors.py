"""What can go wrong with a model's files."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be used. The message names the file or the shortage, and what a person can do."""


class OutOfMemory(ModelError):
    """The memory that is free does not suffice."""

    def __init__(self, message: str, smaller: str = "") -> None:
        super().__init__(message)
        self.smaller = smaller
        """the next smaller target on this machine; "": there is none"""
