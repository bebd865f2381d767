"""Shape-faithful models: a small trained Qwen2 at the exact dimensions of a large one, computing the same."""
