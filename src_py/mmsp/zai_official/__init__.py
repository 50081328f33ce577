"""Z.AI, by its Chat Completions wire."""
