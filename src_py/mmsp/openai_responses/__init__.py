"""Responses of any OpenAI-compatible server."""
