"""Messages of any server that speaks it as Anthropic does."""
