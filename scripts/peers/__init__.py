"""copilotd measured beside what a user could take instead: transformers and llama.cpp."""
