"""The shapes of MMSP: items, messages, events, config.

Plain dicts with these fields are what callers build, store and send over the wire; they never change
form between providers. `data` is bytes in memory and base64 in the wire form.

A complete item's `type` ends in `.done`, a piece of a streaming item's in `.delta`:

    text · thinking · tool_call · inline_data · inline_thinking · embedding     streamed by a model
    image_url · tool_result                                                     only in user messages

Any item may carry `fidelity`: an opaque JSON object that its provider needs back unchanged.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

__all__ = [
    "ContentItem",
    "DeltaItem",
    "Embedding",
    "EmbeddingConfig",
    "EmbeddingDelta",
    "FinishReason",
    "ImageConfig",
    "ImageUrl",
    "InlineData",
    "InlineDataDelta",
    "InlineThinking",
    "InlineThinkingDelta",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "TtsVoice",
    "UniConfig",
    "UniEvent",
    "UniMessage",
    "UsageMetadata",
]

Fidelity: TypeAlias = dict[str, Any]
FinishReason: TypeAlias = Literal["stop", "length", "tool_call", "content_filter", "unknown"]


class Text(TypedDict):
    type: Literal["text.done"]
    text: str
    fidelity: NotRequired[Fidelity]


class ImageUrl(TypedDict):
    """`image_url` is an http(s) or `data:` URL."""

    type: Literal["image_url.done"]
    image_url: str


class InlineData(TypedDict):
    type: Literal["inline_data.done"]
    data: bytes
    mime_type: str
    fidelity: NotRequired[Fidelity]


class Thinking(TypedDict):
    type: Literal["thinking.done"]
    thinking: str
    fidelity: NotRequired[Fidelity]


class InlineThinking(TypedDict):
    type: Literal["inline_thinking.done"]
    data: bytes
    mime_type: str
    fidelity: NotRequired[Fidelity]


class ToolCall(TypedDict):
    type: Literal["tool_call.done"]
    name: str
    arguments: dict[str, Any]
    tool_call_id: str
    fidelity: NotRequired[Fidelity]


class ToolResult(TypedDict):
    """`images` is a list of http(s) or `data:` URLs."""

    type: Literal["tool_result.done"]
    text: str
    images: NotRequired[list[str]]
    tool_call_id: str


class Embedding(TypedDict):
    type: Literal["embedding.done"]
    embedding: list[float]


class TextDelta(TypedDict):
    type: Literal["text.delta"]
    text: str
    fidelity: NotRequired[Fidelity]


class ThinkingDelta(TypedDict):
    type: Literal["thinking.delta"]
    thinking: str
    fidelity: NotRequired[Fidelity]


class ToolCallDelta(TypedDict):
    """`arguments` is a piece of JSON text; only a call's first delta names it, later ones carry `""`."""

    type: Literal["tool_call.delta"]
    name: str
    arguments: str
    tool_call_id: str
    fidelity: NotRequired[Fidelity]


class InlineDataDelta(TypedDict):
    type: Literal["inline_data.delta"]
    data: bytes
    mime_type: str
    fidelity: NotRequired[Fidelity]


class InlineThinkingDelta(TypedDict):
    type: Literal["inline_thinking.delta"]
    data: bytes
    mime_type: str
    fidelity: NotRequired[Fidelity]


class EmbeddingDelta(TypedDict):
    type: Literal["embedding.delta"]
    embedding: list[float]


ContentItem: TypeAlias = (
    Text | ImageUrl | InlineData | Thinking | InlineThinking | ToolCall | ToolResult | Embedding
)
DeltaItem: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | InlineDataDelta
    | InlineThinkingDelta
    | EmbeddingDelta
)


class UsageMetadata(TypedDict):
    """Token counts as the provider reported them, null where it did not; never an estimate.

    Input is `cached_tokens + prompt_tokens`; output is `thoughts_tokens + response_tokens`.
    """

    cached_tokens: int | None
    prompt_tokens: int | None
    thoughts_tokens: int | None
    response_tokens: int | None


class UniMessage(TypedDict):
    """`created_at` is in unix milliseconds; usage and finish reason stand on assistant messages."""

    role: Literal["user", "assistant"]
    content_items: list[ContentItem]
    created_at: NotRequired[int]
    usage_metadata: NotRequired[UsageMetadata | None]
    finish_reason: NotRequired[FinishReason | None]


class UniEvent(TypedDict):
    """A `delta` carries exactly one item (a delta or a done one); the `stop` the usage and finish."""

    role: Literal["assistant"]
    event_type: Literal["delta", "stop"]
    content_items: list[ContentItem | DeltaItem]
    usage_metadata: UsageMetadata | None
    finish_reason: FinishReason | None
    created_at: int


class Tool(TypedDict):
    """`parameters` is a JSON schema; absent for a tool that takes none."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]


class ImageConfig(TypedDict, total=False):
    aspect_ratio: str
    image_size: str


class TtsVoice(TypedDict):
    voice: str
    speaker: NotRequired[str]


class EmbeddingConfig(TypedDict, total=False):
    dimensions: int


class UniConfig(TypedDict, total=False):
    """How to answer; every key is optional and null counts as absent, as do no stop sequences.

    `thinking_level` is mapped to the nearest level the model has. `output_schema` is a JSON schema the
    answer's text must follow. `extra_body` is merged into the request body last.
    """

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop_sequences: list[str] | None
    seed: int | None
    output_schema: dict[str, Any] | None
    extra_body: dict[str, Any] | None
    tools: list[Tool] | None
    tool_choice: Literal["auto", "required", "none"] | list[str] | None
    thinking_level: Literal["none", "low", "medium", "high", "xhigh", "max"] | None
    thinking_summary: bool | None
    system_prompt: str | None
    prompt_caching: Literal["enable", "disable", "enhance"] | None
    fast_mode: bool | None
    image_config: ImageConfig | None
    tts_config: list[TtsVoice] | None
    embedding_config: EmbeddingConfig | None
    trace_id: str | None
