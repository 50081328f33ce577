"""Moonshot's Kimi. K2 knows a switch for thinking, K3 efforts: low, high and max.

Temperature is fixed by the platform. K3 caches for an hour on request; K2 finds what it cached by a key.
"""

from __future__ import annotations

from .chat import ChatDialect, Levels
from .endpoint import Endpoint

__all__ = ["DIALECT", "ENDPOINT"]

_K2: Levels = {
    "none": {"thinking": {"type": "disabled"}},
    **{
        level: {"thinking": {"type": "enabled", "keep": "all"}}
        for level in ("low", "medium", "high", "xhigh", "max")
    },
}
_EFFORTS: Levels = {
    level: {"reasoning_effort": effort}
    for level, effort in {
        "none": "none",
        "low": "low",
        "medium": "high",
        "high": "high",
        "xhigh": "max",
        "max": "max",
    }.items()
}

DIALECT = ChatDialect(
    fixed_temperature=True,
    caching={"enhance": {"prompt_cache_options": {"mode": "implicit", "ttl": "1h"}}},
    cache_key="k2.",
    refuses=(
        ("", frozenset({"fast_mode", "prompt_caching=disable", "tool_choice=list"})),
        ("k2.", frozenset({"prompt_caching=enhance", "tool_choice=required"})),
    ),
    levels=(("k2.", _K2), ("", _EFFORTS)),
    replays_empty_reasoning=False,
    reasoning_details=False,
    names_calls=False,
    fine_images="",
)
ENDPOINT = Endpoint("https://api.moonshot.cn/v1", "MOONSHOT_API_KEY", "MOONSHOT_BASE_URL")
