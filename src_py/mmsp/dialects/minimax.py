"""MiniMax, by its Responses wire. M3.1 always thinks, and ignores the tier and `tool_choice` none."""

from __future__ import annotations

from .endpoint import Endpoint
from .responses import LEAST_LOW, NOT_ON_THE_WIRE, ResponsesDialect

__all__ = ["DIALECT", "ENDPOINT"]

_UP_TO_HIGH = {
    "none": "none", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high",
}  # fmt: skip

DIALECT = ResponsesDialect(
    efforts=(("m3.1", LEAST_LOW), ("", _UP_TO_HIGH)),
    summary="never",
    temperatures=(0.0, 1.0),
    refuses=(
        ("", NOT_ON_THE_WIRE | {"tool_choice=required", "tool_choice=list"}),
        ("m3.1", frozenset({"fast_mode", "tool_choice=none"})),
    ),
    fine_images="",
    thinking_goes_to="content alone",
    keeps_reasoning=False,
    reads_summaries=False,
    calls_come_whole=True,
)
ENDPOINT = Endpoint("https://api.minimax.io/v1", "MINIMAX_API_KEY", "MINIMAX_BASE_URL")
