"""What other libraries and the providers themselves call the things that messages and config hold here.

For errors alone: none of these words is taken. They are compared without case, `_`, `-` and `.`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CONTENT",
    "FIELDS_OF_A_TOOL",
    "advice_for_item",
    "advice_for_key",
    "advice_for_role",
    "plainly",
]

_CONFIG = {
    "max_tokens": "max_completion_tokens max_output_tokens max_new_tokens max_tokens_to_sample num_predict",
    "stop_sequences": "stop stop_sequence stop_words stop_tokens",
    "system_prompt": "system system_instruction system_message instructions instruction developer",
    "thinking_level": "reasoning reasoning_effort effort thinking thinking_budget thinking_config "
    "budget_tokens enable_thinking output_config",
    "thinking_summary": "reasoning_summary include_thoughts thinking_summaries",
    "output_schema": "response_format response_schema response_json_schema json_schema json_mode schema "
    "text_format",
    "tools": "functions function_declarations",
    "tool_choice": "function_call tool_config function_calling_config allowed_function_names",
    "fast_mode": "service_tier speed",
    "prompt_caching": "cache_control cache prompt_cache_key prompt_cache_retention",
    "tts_config": "speech_config voice voices audio",
    "embedding_config": "dimensions output_dimensionality",
    "image_config": "aspect_ratio image_size size",
    "trace_id": "trace",
    "extra_body": "top_k min_p frequency_penalty presence_penalty repetition_penalty logit_bias logprobs "
    "top_logprobs safety_settings safety_identifier user metadata parallel_tool_calls verbosity modalities",
}
_NOT_OURS = "a provider's own: give it in 'extra_body'"

_ELSEWHERE = {
    "the model is the client's: AutoLLMClient(model)": "model model_id model_name engine",
    "the messages are the call's first argument": "messages message input contents prompt history",
    "every call streams: leave it out; stream.message() is the whole answer": "stream stream_options",
    "a call has one answer: make several calls": "n candidate_count num_completions best_of",
    "nothing is stored at a provider: leave it out": "store previous_response_id conversation",
    "it is an argument of the client": "api_key base_url client_type default_headers timeouts "
    "max_retries limits",
    "seconds are given to the client: timeouts=Timeouts(total=…)": "timeout request_timeout",
    "headers are given to the client: default_headers={…}": "headers extra_headers",
    "a call takes it beside its config: signal=…": "signal abort_signal",
}

_ITEMS = {
    "text.done": "text input_text output_text refusal string",
    "image_url.done": "image_url image input_image picture",
    "inline_data.done": "inline_data input_audio audio document file input_file media video blob",
    "thinking.done": "thinking reasoning redacted_thinking thought",
    "tool_call.done": "tool_call tool_use function_call function partial_tool_call",
    "tool_result.done": "tool_result function_call_output function_response tool_output tool_response tool",
    "embedding.done": "embedding",
}
_SHAPES = {
    "text.done": '{"type": "text.done", "text": "…"}',
    "image_url.done": '{"type": "image_url.done", "image_url": "https://…"}',
    "inline_data.done": '{"type": "inline_data.done", "data": b"…", "mime_type": "…"}',
    "thinking.done": '{"type": "thinking.done", "thinking": "…"}',
    "tool_call.done": '{"type": "tool_call.done", "name": "…", "arguments": {…}, "tool_call_id": "…"}',
    "tool_result.done": '{"type": "tool_result.done", "text": "…", "tool_call_id": "…"}',
    "embedding.done": '{"type": "embedding.done", "embedding": […]}',
}

_ROLES = {
    ': instructions go into config["system_prompt"]': "system developer",
    ': a tool\'s result is an item "tool_result.done" of a user message': "tool function ipython",
    ': it is "assistant" here': "model bot ai chatbot agent",
    ': it is "user" here': "human customer",
}

# Names of a message's content elsewhere.
CONTENT = ("content", "parts", "contents", "text")

_A_TOOL = 'a tool is {"name": "…", "description": "…", "parameters": {…}}'
FIELDS_OF_A_TOOL: Mapping[str, str] = {
    "type": _A_TOOL,
    "function": _A_TOOL,
    "function_declarations": _A_TOOL,
    "input_schema": "it is 'parameters' here",
    "inputSchema": "it is 'parameters' here",
    "parameters_json_schema": "it is 'parameters' here",
    "strict": "it has no place here: leave it out",
}


def advice_for_key(key: str) -> str | None:
    """What to do with a key of another library's config; None for a word that nobody uses."""
    return _KEYS.get(plainly(key))


def advice_for_item(kind: str) -> str | None:
    """What an item of another library is here."""
    return _KINDS.get(plainly(kind.removesuffix(".delta").removesuffix(".done")))


def advice_for_role(role: str) -> str:
    return _ADVICE_FOR_ROLES.get(plainly(role), "")


def plainly(word: str) -> str:
    return word.lower().translate(_SIGNS)


_SIGNS = str.maketrans("", "", "_-. ")


def _inverted(table: Mapping[str, str]) -> dict[str, str]:
    return {plainly(word): found for found, words in table.items() for word in words.split()}


_KEYS = {
    word: _NOT_OURS if key == "extra_body" else f"it is {key!r} here"
    for word, key in _inverted(_CONFIG).items()
} | _inverted(_ELSEWHERE)
_KINDS = {
    word: f"did you mean {kind!r}? {_SHAPES[kind]}" for word, kind in _inverted(_ITEMS).items()
}
_ADVICE_FOR_ROLES = _inverted(_ROLES)
