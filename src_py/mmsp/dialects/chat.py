"""`ChatDialect`: facts about one vendor's way of speaking Chat Completions.

The defaults are plain OpenAI's, which most imitators follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..types import FinishReason

__all__ = ["CACHES_BY_ITSELF", "ChatDialect", "Levels"]

Levels = Mapping[str, Mapping[str, Any]]

CACHES_BY_ITSELF = frozenset({"prompt_caching=disable", "prompt_caching=enhance"})

_FINISH_WORDS: Mapping[str, FinishReason] = MappingProxyType(
    {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_call",
        "function_call": "tool_call",  # the word of the call form before tools
        "content_filter": "content_filter",
    }
)


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """Each field is what the vendor's server takes or sends.

    - `max_tokens`: the body's name for that config key.
    - `always`: body keys that every request carries.
    - `asks_for_usage`: usage comes only when `stream_options` asks for it.
    - `fixed_temperature`: 1.0 is the only temperature, and it is not sent.
    - `caching`: what a value of `prompt_caching` adds to the body.
    - `cache_key`: part of the ids of models that are told the trace's id, to find what they cached.
    - `refuses`: see `mmsp.codecs.encoding`.
    - `pictures_by_url`: the server fetches pictures itself.
    - `sees_pictures`: part of the ids of models that take pictures.
    - `levels`: thinking levels. In the first row whose text occurs in the lower-cased model id, each
      level has the object that is merged into the body; without a row levels have no effect.
    - `finish_words`: the server's words for why it stopped; any other is "unknown".
    - `reasoning_fields`: where thinking goes when it is sent back and its own field is not known.
    - `replays_empty_reasoning`: once there was thinking, a turn that calls tools without any must
      carry the field all the same (DeepSeek answers 400 otherwise).
    - `reasoning_details`: gateways hand the model its hidden reasoning back only from these blocks.
    - `names_calls`: a call that came without an id takes its tool's name for one.
    - `fine_images`: part of the ids of models that are to see very large pictures in high detail.
    """

    max_tokens: str = "max_completion_tokens"
    always: Mapping[str, Any] = field(default_factory=dict)
    asks_for_usage: bool = True
    fixed_temperature: bool = False
    caching: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cache_key: str = ""
    refuses: tuple[tuple[str, frozenset[str]], ...] = (("", CACHES_BY_ITSELF),)
    pictures_by_url: bool = False
    sees_pictures: str = ""
    levels: tuple[tuple[str, Levels], ...] = ()
    finish_words: Mapping[str, FinishReason] = field(default_factory=lambda: _FINISH_WORDS)
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    replays_empty_reasoning: bool = True
    reasoning_details: bool = True
    names_calls: bool = True
    fine_images: str = "gpt-5.6"
