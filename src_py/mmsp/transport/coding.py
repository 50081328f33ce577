"""Undoing a content encoding that nobody asked for, a bounded piece at a time."""

from __future__ import annotations

import zlib

from .failure import TransportError

__all__ = ["Inflater"]

_PIECE = 256 * 1024


class Inflater:
    """Decodes gzip or zlib. A small input may unfold to much: what is left waits in `pending`."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(47)  # either format, told by its header
        self.pending = b""

    @classmethod
    def for_coding(cls, coding: str) -> Inflater | None:
        """None for an answer that is not encoded; `TransportError` for an encoding we cannot undo."""
        coding = coding.strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            return cls()
        if coding in ("identity", ""):
            return None
        raise TransportError(
            "body",
            f"the answer is encoded as {coding[:40]!r}, though none was asked for",
            retryable=False,
        )

    def decode(self, data: bytes) -> bytes:
        """At most 256 KB of what `data` and the pending rest unfold to."""
        try:
            piece = self._decoder.decompress(self.pending + data if self.pending else data, _PIECE)
        except zlib.error as error:
            raise TransportError(
                "body", f"the answer's encoding is broken: {error}", retryable=False
            ) from None
        self.pending = self._decoder.unconsumed_tail
        return piece

    @property
    def whole(self) -> bool:
        return self._decoder.eof
