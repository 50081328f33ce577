"""vLLM's own server for Chat Completions. Thinking is switched in the model's chat template.

The switch differs from template to template: Qwen 3.x knows one boolean, Qwen 3.8 three efforts (and takes
the highest where none is given), DeepSeek V4 is off unless told otherwise, and its larger models refuse
"low". Templates that know no switch ignore it. A server that was started without a key takes any.
"""

from __future__ import annotations

from typing import Any

from .chat import ChatDialect, Levels
from .endpoint import Endpoint

__all__ = ["DIALECT", "ENDPOINT"]


def _template(**switches: Any) -> dict[str, Any]:
    return {"chat_template_kwargs": switches}


def _efforts(none: dict[str, Any], *words: str, **switches: Any) -> Levels:
    levels = ("low", "medium", "high", "xhigh", "max")
    rows = zip(levels, words, strict=True)
    return {"none": none} | {
        level: _template(**switches, reasoning_effort=word) for level, word in rows
    }


_OFF = _template(enable_thinking=False)
_SWITCH: Levels = {
    "none": _OFF,
    **dict.fromkeys(("low", "medium", "high", "xhigh", "max"), _template(enable_thinking=True)),
}
_QWEN_3_8 = _efforts(_OFF, "low", "medium", "xhigh", "xhigh", "xhigh")
_DEEPSEEK = _efforts({}, "high", "high", "high", "high", "max", thinking=True)
_DEEPSEEK_VISION = _efforts({}, "low", "high", "high", "high", "max", thinking=True)

DIALECT = ChatDialect(
    levels=(
        ("qwen3.8-flash-next", _QWEN_3_8),
        ("qwen3.8-27b", _QWEN_3_8),
        ("qwen3.6-35b-a3b", _SWITCH),
        ("qwen3.5-0.8b", _SWITCH),
        ("qwen3.5-9b", _SWITCH),
        ("deepseek-v4-flash-vision-exp", _DEEPSEEK_VISION),
        ("deepseek-v4-pro", _DEEPSEEK),
        ("deepseek-v4-flash", _DEEPSEEK),
        ("", _SWITCH),
    ),
)
ENDPOINT = Endpoint(
    "http://127.0.0.1:8000/v1",
    "VLLM_API_KEY",
    "VLLM_BASE_URL",
    open_server=True,
    placeholder_key="EMPTY",
)
