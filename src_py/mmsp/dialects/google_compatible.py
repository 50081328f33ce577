"""generateContent, Google's older wire, which has no service tier."""

from __future__ import annotations

from .google import ENDPOINT, REFUSED, GoogleDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = GoogleDialect(refuses=(("", REFUSED | {"fast_mode"}),))
