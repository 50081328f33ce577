"""Chat Completions of vLLM's own server."""
