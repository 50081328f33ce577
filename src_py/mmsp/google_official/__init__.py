"""Google itself, by its Interactions wire."""
