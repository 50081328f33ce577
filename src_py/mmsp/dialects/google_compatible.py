"""generateContent, Google's older wire, which has no service tier."""

from __future__ import annotations

from dataclasses import replace

from . import google
from .google import REFUSED, GoogleDialect

__all__ = ["DIALECT", "ENDPOINT"]

DIALECT = GoogleDialect(refuses=(("", REFUSED | {"fast_mode"}),))
ENDPOINT = replace(
    google.ENDPOINT,
    refuses_accounts="a service account's key belongs to Vertex AI, which this client does not speak to "
    "yet: give an API key",
)
