"""Embeddings of any OpenAI-compatible server."""
