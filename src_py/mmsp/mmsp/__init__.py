"""A server of this library's own, which asks the providers itself."""
