"""DeepSeek, by its Responses wire (api-docs.deepseek.com).

The service knows the efforts none, low, high and max; temperature has no effect on a model that thinks.
Ids of the V4 generation answer from a placeholder instead of refusing pictures, so they are refused here.
"""

from __future__ import annotations

from .endpoint import Endpoint
from .responses import NOT_ON_THE_WIRE, ResponsesDialect

__all__ = ["DIALECT", "ENDPOINT"]

_EFFORTS = {
    "none": "none", "low": "low", "medium": "high", "high": "high", "xhigh": "high", "max": "max",
}  # fmt: skip

DIALECT = ResponsesDialect(
    efforts=(("", _EFFORTS),),
    summary="alone",
    fixed_temperature=True,
    refuses=(("", NOT_ON_THE_WIRE | {"fast_mode", "tool_choice=required", "tool_choice=list"}),),
    fine_images="",
    text_only=r"deepseek-v4-(flash|pro)(-\d{4})?",
    thinking_goes_to="content",
    keeps_reasoning=False,
    reads_summaries=False,
)
ENDPOINT = Endpoint("https://api.deepseek.com", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL")
