"""Vertex AI: generateContent in a Google Cloud project, opened by a service account's key.

The audience is Google's own, whatever `token_uri` a key names: that is how Google's libraries do it.
"""

from __future__ import annotations

from .endpoint import Endpoint, Grant, unshown
from .google import REFUSED, GoogleDialect

__all__ = ["DIALECT", "ENDPOINT", "GRANT"]

DIALECT = GoogleDialect(version="v1beta1", refuses=(("", REFUSED | {"fast_mode"}),))

GRANT = Grant(
    audience="https://oauth2.googleapis.com/token",
    scope="https://www.googleapis.com/auth/cloud-platform",
)
ENDPOINT = Endpoint(
    "https://aiplatform.googleapis.com",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    unshown,
    grant=GRANT,
)
