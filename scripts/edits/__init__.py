"""The workspace benchmark's parts: scenarios drawn from packages, a runner that writes the truth, the index's figures."""
