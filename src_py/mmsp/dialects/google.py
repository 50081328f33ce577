"""Google: the facts that its two wires share, and its endpoint.

Thinking levels are clamped to those a model has; which it has is the documentation's, as far as it says.
"""

from __future__ import annotations

from dataclasses import dataclass

from .endpoint import Endpoint, Headers
from .responses import Efforts

__all__ = ["DIALECT", "ENDPOINT", "LEVELS", "REFUSED", "GoogleDialect", "goog_api_key"]

# Temperature stays at the models' own; the two others have no field, or none outside Interactions.
REFUSED = frozenset({"temperature", "prompt_caching=disable", "prompt_caching=enhance"})

_FOUR = {
    "none": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high",
}  # fmt: skip
_THREE = {**_FOUR, "none": "low"}
_ENDS = {**_FOUR, "low": "minimal", "medium": "high"}  # minimal and high alone

LEVELS: tuple[tuple[str, Efforts], ...] = (
    ("-image", _ENDS),
    ("gemini-3-pro", {**_THREE, "medium": "high"}),
    ("-pro", _THREE),
    ("gemini-3.7", _THREE),
    ("gemini-3.8", _THREE),
    ("gemini-4-argon", _THREE),
    ("", _FOUR),
)


def goog_api_key(key: str) -> Headers:
    return (("x-goog-api-key", key),) if key else ()


ENDPOINT = Endpoint(
    "https://generativelanguage.googleapis.com",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    goog_api_key,
    refuses_accounts="a service account's key belongs to Vertex AI, which has no Interactions: give an API "
    "key, or use google-genai",
)


@dataclass(frozen=True, slots=True)
class GoogleDialect:
    """- `version`: the first part of every path, unless the base URL ends with one.
    - `levels`: thinking levels. In the first row whose text occurs in the lower-cased model id, each
      level has Google's word for it.
    - `refuses`: see `mmsp.codecs.encoding`.
    - `embeddings`: how many a request may ask for; more are asked for one portion after the other.
    - `labelled_speech`: part of the ids of speech models that take each speaker's turn as a part of its
      own; older ones want the labels left in the text.
    """

    version: str = "v1beta"
    levels: tuple[tuple[str, Efforts], ...] = LEVELS
    refuses: tuple[tuple[str, frozenset[str]], ...] = (("", REFUSED),)
    embeddings: int = 100
    labelled_speech: str = "gemini-3.8"


DIALECT = GoogleDialect()
