"""`TransportError`: everything that can go wrong below HTTP, told by the phase it happened in."""

from __future__ import annotations

__all__ = ["TransportError"]


class TransportError(Exception):
    """`phase` is resolve, connect, proxy, tls, send, head or body.

    `retryable` says whether another try may help.
    """

    def __init__(self, phase: str, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.phase = phase
        self.retryable = retryable
