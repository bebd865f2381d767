"""The backend of a team: a server that speaks OpenAI's /v1/completions, vLLM first."""
