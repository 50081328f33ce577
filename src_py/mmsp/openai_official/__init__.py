"""OpenAI itself, by its Responses wire."""
