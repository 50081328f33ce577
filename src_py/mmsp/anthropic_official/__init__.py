"""Anthropic itself."""
