"""`MessagesDialect`: facts about one vendor's way of speaking Anthropic's Messages.

The defaults are those of servers that imitate it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .chat import Levels

__all__ = ["EFFORTS", "MessagesDialect"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})

# `output_config.effort` takes the five words as they are (the vendor's own type definitions).
EFFORTS: Levels = MappingProxyType(
    {
        "none": {"thinking": {"type": "disabled"}},
        **{
            level: {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
            for level in ("low", "medium", "high", "xhigh", "max")
        },
    }
)


@dataclass(frozen=True, slots=True)
class MessagesDialect:
    """Each field is what the vendor's server takes or sends.

    - `max_tokens`: sent when the caller names none; the wire demands a number.
    - `levels`: thinking levels. In the first row whose text occurs in the lower-cased model id, each
      level has the object that is merged into the body.
    - `caching`: for each accepted value of `prompt_caching` what is merged into the body; "enable" is
      what an absent value means.
    - `fixed_temperature`: 1.0 is the only temperature, and it is not sent.
    - `refuses`: see `mmsp.codecs.encoding`.
    - `replays_unsigned_thinking`: whether thinking without a signature is taken back.
    - `input_usage_at_end`: gateways report no usage at the start and all of it at the end.
    """

    max_tokens: int = 64_000
    levels: tuple[tuple[str, Levels], ...] = (("", EFFORTS),)
    caching: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: MappingProxyType({"enable": _NOTHING})
    )
    fixed_temperature: bool = False
    refuses: tuple[tuple[str, frozenset[str]], ...] = (("", frozenset({"seed"})),)
    replays_unsigned_thinking: bool = True
    input_usage_at_end: bool = True
