"""Moonshot's Kimi, by its Chat Completions wire."""
