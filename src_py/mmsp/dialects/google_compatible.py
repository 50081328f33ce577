"""generateContent, Google's older wire, which has no service tier, and which Vertex AI speaks too."""

from __future__ import annotations

from dataclasses import replace

from . import google, vertex
from .google import REFUSED, GoogleDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = GoogleDialect(refuses=(("", REFUSED | {"fast_mode"}),))
ENDPOINT = replace(google.ENDPOINT, refuses_accounts="", accounts=vertex.ENDPOINT)
