"""`Halves`: characters that a JavaScript server cut in two at the border of two events."""

from __future__ import annotations

from collections.abc import Hashable

from .forgiving import whole_characters

__all__ = ["Halves"]


class Halves:
    """Keeps the first half of a character until the second one comes, for each growing text."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, str] = {}

    def mend(self, of: Hashable, text: str) -> str:
        """`text` in whole characters; a half at its end waits for the next piece of the same text."""
        half = self._kept.pop(of, "")
        if text[:1] and "\udc00" <= text[0] <= "\udfff":
            text = half + text
        if text[-1:] and "\ud800" <= text[-1] <= "\udbff":
            self._kept[of], text = text[-1], text[:-1]
        return whole_characters(text)
