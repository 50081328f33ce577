"""`ResponsesDialect`: facts about one vendor's way of speaking OpenAI's Responses.

The defaults are those of servers that imitate it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["EFFORTS", "LEAST_LOW", "NOT_ON_THE_WIRE", "Efforts", "ResponsesDialect"]

Efforts = Mapping[str, str]

# `reasoning.effort` takes the words as they are (the vendor's own type definitions).
EFFORTS: Efforts = MappingProxyType(
    {word: word for word in ("none", "low", "medium", "high", "xhigh", "max")}
)
LEAST_LOW: Efforts = MappingProxyType({**EFFORTS, "none": "low"})

# The wire has no field for these, and caches prompts by itself.
NOT_ON_THE_WIRE = frozenset(
    {"seed", "stop_sequences", "prompt_caching=disable", "prompt_caching=enhance"}
)


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """Each field is what the vendor's server takes or sends.

    - `always`: body keys that every request carries.
    - `efforts`: thinking levels. In the first row whose text occurs in the lower-cased model id, each
      level has its word for `reasoning.effort`.
    - `summary`: whether a summary of the thinking may be asked for: alone, only with a level (OpenRouter
      takes `reasoning` without an effort for "off"), or not at all.
    - `fixed_temperature`: 1.0 is the only temperature, and it is not sent.
    - `temperatures`: the lowest and highest that are taken.
    - `refuses`: see `mmsp.codecs.encoding`.
    - `fine_images`: part of the ids of models that are to see very large pictures in high detail.
    - `text_only`: a pattern of the bare, lower-cased ids of models that see no pictures.
    - `thinking_goes_to`: where thinking is sent back: into the channel it came in ("channel"), or always
      into `content`, with an empty `summary` beside it or without.
    - `sealed_is_summary`: thinking with sealed content and no known channel was a summary; so thinking
      that came in `content` says so.
    - `keeps_reasoning`: sealed content, signatures, phases and built-in tools' items are kept and sent
      back.
    - `keeps_empty_phase`: a message's phase is kept even where it is "".
    - `reads_summaries`: whether summary deltas are thinking.
    - `calls_come_whole`: calls are read from the finished item; their deltas say too little.
    """

    always: Mapping[str, Any] = field(default_factory=dict)
    efforts: tuple[tuple[str, Efforts], ...] = (
        ("gpt-6-luna", EFFORTS),
        ("gpt-6", LEAST_LOW),  # they answer 400 to none
        ("", EFFORTS),
    )
    summary: Literal["alone", "with a level", "never"] = "with a level"
    fixed_temperature: bool = False
    temperatures: tuple[float, float] = (-math.inf, math.inf)
    refuses: tuple[tuple[str, frozenset[str]], ...] = (("", NOT_ON_THE_WIRE),)
    fine_images: str = "gpt-5.6"
    text_only: str = ""
    thinking_goes_to: Literal["channel", "content", "content alone"] = "channel"
    sealed_is_summary: bool = False
    keeps_reasoning: bool = True
    keeps_empty_phase: bool = False
    reads_summaries: bool = True
    calls_come_whole: bool = False
