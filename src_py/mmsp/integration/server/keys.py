"""Who may call, and whose a stream is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

__all__ = ["OPEN", "Keys"]

OPEN = ""  # the owner of every stream of a server without keys

_LABEL = b"mmsp: the owner of a stream"


class Keys:
    """The keys that a server takes; a server without keys is open. `repr` shows none."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @property
    def is_open(self) -> bool:
        return not self._keys

    def owner(self, authorization: bytes) -> str | None:
        """Who presents this header, as a name that does not tell the key; None for nobody we know.

        Every key is compared, each in constant time, so that the time tells nothing.
        """
        if self.is_open:
            return OPEN
        scheme, _, presented = authorization.partition(b" ")
        known = [hmac.compare_digest(presented, key) for key in self._keys]
        if scheme != b"Bearer" or not any(known):
            return None
        return hmac.new(presented, _LABEL, hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return "<Keys: none, open>" if self.is_open else f"<{len(self._keys)} Keys>"
