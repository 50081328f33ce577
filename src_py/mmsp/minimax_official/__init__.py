"""MiniMax, by its Responses wire."""
