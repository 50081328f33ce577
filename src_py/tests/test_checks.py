# ruff: noqa: E501 (a row of a table stays on one line)
"""What is wrong with messages and config is told by its place, before anything is sent."""

from __future__ import annotations

import copy
import datetime
import enum
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmsp import (
    AutoLLMClient,
    InvalidMessageError,
    MMSPError,
    UnsupportedParameterError,
    synonyms,
)
from mmsp.checks import checked_config, checked_message, checked_messages
from mmsp.registry import CLIENTS
from mmsp.synonyms import plainly
from mmsp.testing import Answer, ScriptedProvider
from mmsp.types import UniConfig, UniMessage
from tests.asking import QUESTION, client_of

NOW = 1_760_000_000_000


def user(*items: Any) -> list[Any]:
    return [{"role": "user", "content_items": list(items)}]


def assistant(*items: Any) -> list[Any]:
    return [{"role": "assistant", "content_items": list(items)}]


def said(text: Any = "a") -> dict[str, Any]:
    return {"type": "text.done", "text": text}


def call(**fields: Any) -> dict[str, Any]:
    return {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "c", **fields}


ITSELF: dict[str, Any] = {}
ITSELF["me"] = ITSELF

# messages → the beginning of the error's text, its item type and index
FAULTS: list[tuple[Any, str, str | None, int | None]] = [
    ([], "messages is empty: give it at least one", None, None),
    ("hi", "messages is a str; it is a list of messages", None, None),
    (None, "messages is null; it is a list", None, None),
    (user(said())[0], "messages is a dict; it is a list of messages. Put the message into a", None, None),
    (["hi"], "messages[0] is a str; a message is an object", None, 0),
    ([{"content_items": [said()]}], "messages[0].role is missing", None, 0),
    ([{"role": "user"}], "messages[0].content_items is missing", None, 0),
    ([{"role": "user", "content": "hi"}], "messages[0].content_items is missing: write \"content_items\": [{\"type\": \"text.done\", \"text\": \"…\"}] for 'content'", None, 0),
    ([{"role": "user", "parts": [{"text": "hi"}]}], "messages[0].content_items is missing: write \"content_items\"", None, 0),
    ([{"role": "user", "content_item": []}], "messages[0].content_items is missing: did you mean it with 'content_item'?", None, 0),
    ([{"role": "model", "content_items": [said()]}], "messages[0].role is 'model'; it is \"user\" or \"assistant\": it is \"assistant\" here", None, 0),
    ([{"role": "developer", "content_items": [said()]}], "messages[0].role is 'developer'; it is \"user\" or \"assistant\": instructions go", None, 0),
    ([{"role": "function", "content_items": [said()]}], "messages[0].role is 'function'; it is \"user\" or \"assistant\": a tool's result is an item", None, 0),
    (user({"type": "input_text", "text": "a"}), "messages[0].content_items[0].type is 'input_text', which is no type of item: did you mean 'text.done'? {\"type\": \"text.done\", \"text\": \"…\"}", "input_text", 0),
    (user({"type": "image_url", "image_url": {"url": "https://a"}}), "messages[0].content_items[0].type is 'image_url', which is no type of item: did you mean 'image_url.done'? {\"type\": \"image_url.done\", \"image_url\": \"https://…\"}", "image_url", 0),
    (assistant({"type": "tool_use", "id": "c", "name": "f", "input": {}}), "messages[0].content_items[0].type is 'tool_use', which is no type of item: did you mean 'tool_call.done'?", "tool_use", 0),
    (assistant({"type": "functionCall"}), "messages[0].content_items[0].type is 'functionCall', which is no type of item: did you mean 'tool_call.done'?", "functionCall", 0),
    (assistant({"type": "partial_tool_call"}), "messages[0].content_items[0].type is 'partial_tool_call', which is no type of item: did you mean 'tool_call.done'?", "partial_tool_call", 0),
    (user({"type": "function_call_output"}), "messages[0].content_items[0].type is 'function_call_output', which is no type of item: did you mean 'tool_result.done'?", "function_call_output", 0),
    (user(), "messages[0].content_items is empty", None, 0),
    ([{"role": "user", "content_items": "hi"}], "messages[0].content_items is a str; it is a list", None, 0),
    (
        [*user(said()), {"role": "system", "content_items": [said()]}],
        "messages[1].role is 'system'; it is \"user\" or \"assistant\": instructions go into config",
        None,
        1,
    ),
    ([{"role": "tool", "content_items": [said()]}], "messages[0].role is 'tool'", None, 0),
    ([{"role": 3, "content_items": [said()]}], "messages[0].role is an int", None, 0),
    (user("hi"), "messages[0].content_items[0] is a str; an item is an object: text is", None, 0),
    (user({"text": "a"}), "messages[0].content_items[0].type is missing", None, 0),
    (user({"type": 1}), "messages[0].content_items[0].type is an int", None, 0),
    (user({"type": "text", "text": "a"}), "messages[0].content_items[0].type is 'text', which is no type of item: did you mean 'text.done'?", "text", 0),
    (user({"type": "text.delta", "text": "a"}), "messages[0].content_items[0].type is 'text.delta', a piece", "text.delta", 0),
    (user({"type": "video.done"}), "messages[0].content_items[0].type is 'video.done', which is no", "video.done", 0),
    (user({"type": "text.done"}), "messages[0].content_items[0].text is missing", "text", 0),
    (user(said(3)), "messages[0].content_items[0].text is an int; it is a string", "text", 0),
    (user(said(None)), "messages[0].content_items[0].text is null; it is a string", "text", 0),
    (user(said("\ud83d")), "messages[0].content_items[0].text holds half a character", "text", 0),
    (user(said(), {**said(), "txt": ""}), "messages[0].content_items[1] has no field 'txt': did you mean 'text'?", "text", 0),
    (user({**said(), "fidelity": []}), "messages[0].content_items[0].fidelity is a list; it is an object", "text", 0),
    (user({"type": "tool_result.done", "text": "a"}), "messages[0].content_items[0].tool_call_id is missing: a result names the call", "tool_result", 0),
    (user({"type": "tool_result.done", "text": "a", "tool_call_id": ""}), "messages[0].content_items[0].tool_call_id is empty", "tool_result", 0),
    (user({"type": "tool_result.done", "text": "", "tool_call_id": "c", "images": "u"}), "messages[0].content_items[0].images is a str; it is a list of URLs", "tool_result", 0),
    (user({"type": "tool_result.done", "text": "", "tool_call_id": "c", "images": ["https://a", "b.png"]}), "messages[0].content_items[0].images[1] is no http(s):// or data: URL", "tool_result", 0),
    (user({"type": "image_url.done", "image_url": "file:///etc/passwd"}), "messages[0].content_items[0].image_url is no http(s)", "image_url", 0),
    (user({"type": "inline_data.done", "data": "AA==", "mime_type": "image/png"}), "messages[0].content_items[0].data is a str; it is bytes", "inline_data", 0),
    (user(call()), "messages[0].content_items[0].type is 'tool_call.done', which belongs into an assistant message", "tool_call", 0),
    (assistant({"type": "image_url.done", "image_url": "https://a"}), "messages[0].content_items[0].type is 'image_url.done', which belongs into a user message", "image_url", 0),
    (assistant(call(arguments="{}")), "messages[0].content_items[0].arguments is a str; it is an object", "tool_call", 0),
    (assistant(call(arguments={"a": [1, {"when": datetime.date(2026, 1, 1)}]})), "messages[0].content_items[0].arguments.a[1].when is a date, which JSON", "tool_call", 0),
    (assistant(call(arguments={"a": float("inf")})), "messages[0].content_items[0].arguments.a is inf", "tool_call", 0),
    (assistant(call(arguments={"n": 10**5000})), "messages[0].content_items[0].arguments.n is an integer of thousands of digits", "tool_call", 0),
    (assistant(call(arguments={1: 2})), "messages[0].content_items[0].arguments has an int for a key", "tool_call", 0),
    (assistant(call(arguments=ITSELF)), "messages[0].content_items[0].arguments.me.me", "tool_call", 0),
    (assistant({"type": "embedding.done", "embedding": [1.0, "b"]}), "messages[0].content_items[0].embedding[1] is a str", "embedding", 0),
    ([{**user(said())[0], "created_at": "now"}], "messages[0].created_at is a str; it is an integer", None, 0),
    ([{**user(said())[0], "finish_reason": "end"}], "messages[0].finish_reason is 'end'; it is one of", None, 0),
    ([{**user(said())[0], "usage_metadata": {"prompt": 1}}], "messages[0].usage_metadata has no field 'prompt': did you mean", None, 0),
    ([{**user(said())[0], "mine": b"x"}], "messages[0].mine is a bytes", None, 0),
]  # fmt: skip

CONFIGS: list[tuple[Any, str, str]] = [
    ({"max_token": 5}, "config has no key 'max_token': did you mean 'max_tokens'?", "max_token"),
    ({"stop": ["a"]}, "config has no key 'stop': it is 'stop_sequences' here", "stop"),
    ({"max_completion_tokens": 5}, "config has no key 'max_completion_tokens': it is 'max_tokens' here", "max_completion_tokens"),
    ({"maxOutputTokens": 5}, "config has no key 'maxOutputTokens': it is 'max_tokens' here", "maxOutputTokens"),
    ({"maxTokens": 5}, "config has no key 'maxTokens': did you mean 'max_tokens'?", "maxTokens"),
    ({"system": "a"}, "config has no key 'system': it is 'system_prompt' here", "system"),
    ({"reasoning_effort": "low"}, "config has no key 'reasoning_effort': it is 'thinking_level' here", "reasoning_effort"),
    ({"response_format": {}}, "config has no key 'response_format': it is 'output_schema' here", "response_format"),
    ({"model": "m"}, "config has no key 'model': the model is the client's: AutoLLMClient(model)", "model"),
    ({"messages": []}, "config has no key 'messages': the messages are the call's first argument", "messages"),
    ({"stream": True}, "config has no key 'stream': every call streams: leave it out", "stream"),
    ({"n": 2}, "config has no key 'n': a call has one answer", "n"),
    ({"timeout": 2}, "config has no key 'timeout': seconds are given to the client: timeouts=", "timeout"),
    ({"api_key": "sk-secret"}, "config has no key 'api_key': it is an argument of the client", "api_key"),
    ({"top_k": 2}, "config has no key 'top_k': a provider's own: give it in 'extra_body'", "top_k"),
    ({5: 2}, "config has an int for a key; keys are strings", "5"),
    ({10**5000: 2}, "config has an int for a key; keys are strings", "so large an integer"),
    ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "config.tools[0] has no field 'type': a tool is {\"name\"", "tools"),
    ({"tools": [{"name": "a", "input_schema": {}}]}, "config.tools[0] has no field 'input_schema': it is 'parameters' here", "tools"),
    ({"tool_choice": "required"}, "config.tool_choice is 'required', and config has no tools to choose from", "tool_choice"),
    ({"tool_choice": "required", "tools": []}, "config.tool_choice is 'required', and config has no tools", "tool_choice"),
    ({"tool_choice": ["a"], "tools": []}, "config.tool_choice[0] is 'a', which is none of the tools: config has no tools", "tool_choice"),
    ({"tools": [{"name": "weather"}], "tool_choice": ["weather", "whether"]}, "config.tool_choice[1] is 'whether', which is none of the tools: did you mean 'weather'?", "tool_choice"),
    ({"zzz": 5}, "config has no key 'zzz'; there are max_tokens, temperature", "zzz"),
    ({"max_tokens": -1}, "config.max_tokens is -1; it is 0 or more", "max_tokens"),
    ({"max_tokens": True}, "config.max_tokens is a bool; it is an integer", "max_tokens"),
    ({"temperature": 10**5000}, "config.temperature is an integer of thousands of digits", "temperature"),
    ({"seed": -(10**5000)}, "config.seed is an integer of thousands of digits", "seed"),
    ({"tool_choice": ["a"]}, "config.tool_choice[0] is 'a', which is none of the tools", "tool_choice"),
    ({"max_tokens": 1.5}, "config.max_tokens is a float", "max_tokens"),
    ({"temperature": "1"}, "config.temperature is a str; it is a number", "temperature"),
    ({"top_p": float("nan")}, "config.top_p is nan", "top_p"),
    ({"stop_sequences": "END"}, "config.stop_sequences is a str; it is a list", "stop_sequences"),
    ({"stop_sequences": [""]}, "config.stop_sequences[0] is empty", "stop_sequences"),
    ({"tools": {}}, "config.tools is a dict; it is a list of tools", "tools"),
    ({"tools": [{}]}, "config.tools[0].name is missing", "tools"),
    ({"tools": [{"name": "a", "parameter": {}}]}, "config.tools[0] has no field 'parameter': did you mean 'parameters'?", "tools"),
    ({"tools": [{"name": "a"}, {"name": "a"}]}, "config.tools[1].name is 'a' for the second", "tools"),
    ({"tools": [{"name": "a"}], "tool_choice": ["b"]}, "config.tool_choice[0] is 'b', which is none", "tool_choice"),
    ({"tool_choice": "any"}, "config.tool_choice is 'any'; it is one of 'auto', 'required'", "tool_choice"),
    ({"tool_choice": []}, "config.tool_choice is empty", "tool_choice"),
    ({"thinking_level": "extreme"}, "config.thinking_level is 'extreme'; it is one of", "thinking_level"),
    ({"thinking_summary": 1}, "config.thinking_summary is an int; it is true or false", "thinking_summary"),
    ({"prompt_caching": True}, "config.prompt_caching is a bool; it is one of", "prompt_caching"),
    ({"extra_body": {"a": b""}}, "config.extra_body.a is a bytes", "extra_body"),
    ({"output_schema": "{}"}, "config.output_schema is a str; it is an object", "output_schema"),
    ({"image_config": {"aspect_ratio": "5:4"}}, "config.image_config.aspect_ratio is '5:4'", "image_config"),
    ({"tts_config": [{"speaker": "A"}]}, "config.tts_config[0].voice is missing", "tts_config"),
    ({"embedding_config": {"dimensions": 0}}, "config.embedding_config.dimensions is 0", "embedding_config"),
    ({"trace_id": ""}, "config.trace_id is empty", "trace_id"),
    ({"system_prompt": "\udc00"}, "config.system_prompt holds half a character", "system_prompt"),
    ([], "config is a list; it is an object", "config"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "text", "item_type", "index"), FAULTS)
async def test_a_faulty_message_is_named_at_the_call_and_nothing_is_sent(
    messages: Any, text: str, item_type: str | None, index: int | None
) -> None:
    with ScriptedProvider() as provider:
        with pytest.raises(InvalidMessageError) as caught:
            client_of(provider).streaming_response(messages)
        assert provider.connections == []
    error = caught.value
    assert str(error).startswith(text)
    assert (error.client, error.item_type, error.message_index) == (
        "OpenAIChatClient",
        item_type,
        index,
    )


@pytest.mark.parametrize(("config", "text", "parameter"), CONFIGS)
async def test_a_faulty_config_is_named_at_the_call_and_before_the_messages(
    config: Any, text: str, parameter: str
) -> None:
    with ScriptedProvider() as provider:
        client = client_of(provider)
        no_message: Any = {}
        for make in (client.streaming_response, client.streaming_response_stateful):
            with pytest.raises(UnsupportedParameterError) as caught:
                make(no_message, config)
            assert str(caught.value).startswith(text)
            assert caught.value.parameter == parameter
        assert provider.connections == []


def test_the_message_of_a_stateful_call_is_named_without_a_number() -> None:
    client = AutoLLMClient("m", "k", client_type="openai-chat")
    faulty: list[Any] = [user()[0], "hi"]
    for message in faulty:
        with pytest.raises(InvalidMessageError) as caught:
            client.streaming_response_stateful(message)
        assert str(caught.value).startswith("message")
        assert not str(caught.value).startswith("messages")
        assert caught.value.message_index == 0
    assert client.get_history() == []


def test_a_faulty_history_is_refused_and_the_old_one_kept() -> None:
    client = AutoLLMClient("m", "k", client_type="openai-chat")
    client.set_history([QUESTION])
    before = client.get_history()
    with pytest.raises(InvalidMessageError, match=r"messages\[0\]\.content_items is empty"):
        client.set_history(user())
    assert client.get_history() == before
    client.set_history([])
    assert client.get_history() == []


def test_what_is_good_is_copied_and_the_callers_objects_stay_as_they_are() -> None:
    image = {"type": "image_url.done", "image_url": "data:image/png;base64,AA=="}
    result = {"type": "tool_result.done", "text": "", "tool_call_id": "c", "images": None}
    answer = {
        **assistant(call(arguments={"a": [1]}), {**said(), "fidelity": {"x": {"y": 1}}})[0],
        "usage_metadata": {"prompt_tokens": 3},
        "finish_reason": None,
        "my own": {"key": [1]},
    }
    messages = (*user(said(), image, result), answer)
    before = copy.deepcopy(messages)
    checked: Any = checked_messages(messages, client="C", now=NOW)
    assert [each["created_at"] for each in checked] == [NOW, NOW]
    assert "images" not in checked[0]["content_items"][2]
    assert checked[1]["usage_metadata"] == {
        "cached_tokens": None,
        "prompt_tokens": 3,
        "thoughts_tokens": None,
        "response_tokens": None,
    }
    assert "finish_reason" not in checked[1]
    assert checked[1]["my own"] == {"key": [1]}
    checked[1]["content_items"][0]["arguments"]["a"].append(2)
    checked[1]["content_items"][1]["fidelity"]["x"]["y"] = 2
    checked[1]["my own"]["key"].clear()
    assert messages == before


def test_mappings_and_tuples_are_taken_as_objects_and_lists() -> None:
    item = MappingProxyType(said())
    message = MappingProxyType({"role": "user", "content_items": (item,), "created_at": 5})
    assert checked_message(message, client="C", now=NOW) == {**user(said())[0], "created_at": 5}


@pytest.mark.parametrize("client_type", CLIENTS)
async def test_an_empty_list_of_stops_is_none_and_never_sent(client_type: str) -> None:
    config: Any = {"stop_sequences": (), "tool_choice": "auto"}
    assert checked_config(config, client="C") == {"tool_choice": "auto"}
    bodies = []
    with ScriptedProvider(Answer.error(400, "enough")) as provider:
        client = client_of(provider, client_type)
        auto: Any = {"tool_choice": "auto"}
        stamped: Any = {**QUESTION, "created_at": 1}
        for each in (config, auto):
            with pytest.raises(MMSPError):
                await client.streaming_response([stamped], each).message()
            bodies.append(json.loads(provider.requests[-1].body))
    assert bodies[0] == bodies[1]
    assert "stop" not in provider.requests[0].body.decode()


@pytest.mark.parametrize("choice", ["required", ["search"]])
def test_a_choice_may_ask_for_tools_that_stand_in_the_extra_body(choice: Any) -> None:
    extra = {"tools": [{"type": "web_search"}]}
    config = {"tool_choice": choice, "extra_body": extra}
    assert checked_config(config, client="C") == config


def test_a_choice_of_none_or_any_needs_no_tools() -> None:
    for choice in ("none", "auto"):
        assert checked_config({"tool_choice": choice}, client="C") == {"tool_choice": choice}


def test_no_word_of_the_tables_is_one_that_is_taken() -> None:
    assert not {plainly(key) for key in UniConfig.__annotations__} & set(synonyms._KEYS)
    keys = [key for key in synonyms._CONFIG if key != "extra_body"]
    assert set(keys) <= set(UniConfig.__annotations__)
    for kind, shape in synonyms._SHAPES.items():
        assert shape.startswith(f'{{"type": "{kind}"')
    assert set(synonyms._ITEMS) == set(synonyms._SHAPES)


def test_members_of_an_enum_are_taken_as_their_values() -> None:
    class Mine(str, enum.Enum):  # noqa: UP042 (its text is no value, that of a StrEnum is)
        ROLE, ITEMS, TYPE, TEXT, KIND = "role", "content_items", "type", "text", "text.done"
        USER, LEVEL, LOW, CHOICE, AUTO = "user", "thinking_level", "low", "tool_choice", "auto"

    class Count(enum.IntEnum):
        FIVE = 5

    message: Any = {Mine.ROLE: Mine.USER, Mine.ITEMS: [{Mine.TYPE: Mine.KIND, Mine.TEXT: Mine.LOW}]}
    config: Any = {Mine.LEVEL: Mine.LOW, Mine.CHOICE: Mine.AUTO, "max_tokens": Count.FIVE,
                   "system_prompt": Mine.TEXT, "extra_body": {Mine.TEXT: [Count.FIVE]}}  # fmt: skip
    (checked,) = checked_messages([message], client="C", now=NOW)
    settings = checked_config(config, client="C")
    assert checked == {**user(said("low"))[0], "created_at": NOW}
    assert settings == {"thinking_level": "low", "tool_choice": "auto", "max_tokens": 5,
                        "system_prompt": "text", "extra_body": {"text": [5]}}  # fmt: skip
    assert kinds_in([checked, settings]) <= {dict, list, str, int}


def kinds_in(value: Any) -> set[type]:
    """The types of all that is in `value`."""
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    inside = parts if isinstance(value, dict | list) else ()
    return {type(value)}.union(*map(kinds_in, inside))


def test_null_counts_as_absent_in_a_config() -> None:
    given = {"max_tokens": None, "tools": [{"name": "a", "description": None}], "seed": 0}
    assert checked_config(given, client="C") == {"tools": [{"name": "a"}], "seed": 0}


ANYTHING: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from(["user", "assistant", "text.done", "tool_call.done", "tool_result.done"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content_items", "type", "text", "name", "arguments", "tool_call_id", "x"]
            )
            | st.integers(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text.done", "tool_call.done", "thinking.done", "tool_result.done"]
            )
        },
        optional=dict.fromkeys(
            ["text", "thinking", "name", "arguments", "tool_call_id", "images", "fidelity"],
            ANYTHING,
        ),
    )
    | ANYTHING,
    max_size=3,
)
ROUGHLY = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content_items": ITEMS}
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANYTHING | st.lists(ROUGHLY | ANYTHING, max_size=3), ANYTHING | st.none())
def test_anything_is_encoded_or_refused_with_an_error_of_ours(messages: Any, config: Any) -> None:
    client = AutoLLMClient("m", "k", client_type="openai-chat")
    try:
        good_config = checked_config({} if config is None else config, client="C")
        good: list[UniMessage] = checked_messages(messages, client="C", now=NOW)
        requests = client._client._try_to_encode(good, good_config)
    except MMSPError:
        return
    if requests is not None:
        (request,) = requests
        assert json.loads(request.body)["messages"] or not good
