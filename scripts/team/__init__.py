"""Copilotd beside a real vLLM: setting it up, and what copilotd adds to it."""
