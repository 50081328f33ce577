"""What stands around the library: reading traces; more follows."""
