"""Undoing a content encoding that nobody asked for, a bounded piece at a time."""

from __future__ import annotations

import zlib

from .failure import TransportError

__all__ = ["Inflater"]

_PIECE = 256 * 1024
_BY_HEADER = 47  # zlib or gzip, told by the header
_RAW = -15  # deflate without a header, as some servers understand the word
_LONGEST_NAME = 40  # characters of an encoding; what is longer is none


class Inflater:
    """Decodes gzip or deflate. A small input may unfold to much: what is left waits in `pending`."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_BY_HEADER)
        self._begun = False
        self.pending = b""

    @classmethod
    def for_coding(cls, coding: str) -> Inflater | None:
        """None for an answer that is not encoded; `TransportError` for an encoding we cannot undo."""
        name = coding.strip().lower()
        if name in ("gzip", "x-gzip", "deflate"):
            return cls()
        if name in ("identity", ""):
            return None
        shown = repr(coding) if len(coding) <= _LONGEST_NAME else "nobody knows what"  # never cut
        raise TransportError(
            "body",
            f"the answer is encoded as {shown}, though no encoding was asked for",
            retryable=False,
        )

    def decode(self, data: bytes) -> bytes:
        """At most 256 KB of what the pending rest and `data` unfold to."""
        data = self.pending + data
        if data and not self._begun:
            self._begun = True
            if data[0] & 0x0F != 8 and data[0] != 0x1F:  # neither zlib's first byte nor gzip's
                self._decoder = zlib.decompressobj(_RAW)
        try:
            piece = self._decoder.decompress(data, _PIECE)
        except zlib.error as error:
            self.pending = b""
            raise TransportError(
                "body", f"the answer's encoding is broken: {error}", retryable=False
            ) from None
        self.pending = self._decoder.unconsumed_tail
        if self._decoder.eof:
            self.pending = self._decoder.unused_data
            if self.pending:  # gzip may come in several members
                self._decoder = zlib.decompressobj(_BY_HEADER)
        return piece

    @property
    def whole(self) -> bool:
        """Whether the encoding's own end was seen; an empty body needs none."""
        return self._decoder.eof or not self._begun
