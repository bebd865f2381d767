"""copilotd: private inline code completion for one person's editors."""

__version__ = "0.1.0"
