"""Codecs: how each wire protocol is spoken, as pure functions of bytes and plain data."""
