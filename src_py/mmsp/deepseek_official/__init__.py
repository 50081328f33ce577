"""DeepSeek, by its Responses wire."""
