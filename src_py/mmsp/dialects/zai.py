"""Z.AI (docs.z.ai). Its models think unless told not to, and drop earlier thinking unless told to keep it.

Of the efforts GLM-5.3 knows low, high and max, and it always thinks; older models map or ignore them.
"""

from __future__ import annotations

from typing import Any

from .chat import CACHES_BY_ITSELF, ChatDialect, Levels
from .endpoint import Endpoint

__all__ = ["DIALECT", "ENDPOINT"]

_LEVELS = ("low", "medium", "high", "xhigh", "max")
_ON: dict[str, Any] = {"thinking": {"type": "enabled", "clear_thinking": False}}
_OFF: dict[str, Any] = {"thinking": {"type": "disabled"}}

_GLM_5_3: Levels = {
    level: {**_ON, "reasoning_effort": effort}
    for level, effort in zip(
        ("none", *_LEVELS), ("low", "low", "high", "high", "max", "max"), strict=True
    )
}
_OTHERS: Levels = {"none": _OFF} | {level: {**_ON, "reasoning_effort": level} for level in _LEVELS}

DIALECT = ChatDialect(
    max_tokens="max_tokens",
    always={"tool_stream": True},  # streams the arguments of calls
    asks_for_usage=False,
    refuses=(
        (
            "",
            CACHES_BY_ITSELF
            | {"fast_mode", "tool_choice=none", "tool_choice=required", "tool_choice=list"},
        ),
    ),
    pictures_by_url=True,
    sees_pictures="glm-5.3-flash",
    levels=(("glm-5.3", _GLM_5_3), ("", _OTHERS)),
    replays_empty_reasoning=False,
    reasoning_details=False,
    names_calls=False,
    fine_images="",
)
ENDPOINT = Endpoint("https://api.z.ai/api/paas/v4/", "ZAI_API_KEY", "ZAI_BASE_URL")
