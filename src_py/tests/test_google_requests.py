# ruff: noqa: E501 (a row of a table stays on one line)
"""generateContent and Interactions as requests: config, parts and steps, and where signatures go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmsp import errors
from mmsp.codecs.google_codec import stand_in_signature
from mmsp.codecs.google_generate_content import GenerateContentCodec
from mmsp.codecs.google_interactions import InteractionsCodec
from mmsp.dialects import google, google_compatible
from mmsp.request import HttpRequest, Target

CONTENT = GenerateContentCodec(google_compatible.DIALECT)
STEPS = InteractionsCodec(google.DIALECT)
CODECS = pytest.mark.parametrize("codec", [CONTENT, STEPS], ids=["generateContent", "Interactions"])
HOST = "generativelanguage.googleapis.com"
TARGET = Target(f"https://{HOST}")
TEXT = {"type": "text.done", "text": "a"}
SCHEMA = {"type": ["object", "null"], "properties": {}}
PLACEHOLDER = {"thoughtSignature": stand_in_signature}


def own(codec: Any, **fields: Any) -> dict[str, Any]:
    return {**fields, "wire": codec.name, "host": HOST}


def user(*items: Any) -> dict[str, Any]:
    return {"role": "user", "content_items": list(items)}


def model(*items: Any) -> dict[str, Any]:
    return {"role": "assistant", "content_items": list(items)}


def request(
    codec: Any, messages: list[Any], name: str = "gemini-x", target: Target = TARGET, **config: Any
) -> HttpRequest:
    made: HttpRequest = codec.encode(name, messages, config, target, client="C", images={})
    return made


def body(codec: Any, messages: list[Any] | None = None, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request(codec, messages or [user(TEXT)], **given).body)
    return found


def parts(*messages: Any) -> list[Any]:
    return [part for each in body(CONTENT, list(messages))["contents"] for part in each["parts"]]


def steps(*messages: Any) -> list[Any]:
    found: list[Any] = body(STEPS, list(messages))["input"]
    return found


def call(name: str = "f", call_id: str = "c1", **fidelity: Any) -> dict[str, Any]:
    item = {"type": "tool_call.done", "name": name, "arguments": {"q": 1}, "tool_call_id": call_id}
    return item | ({"fidelity": fidelity} if fidelity else {})


def result(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result.done", "text": "7", "tool_call_id": call_id, **fields}


def thinking(text: str, **fidelity: Any) -> dict[str, Any]:
    item = {"type": "thinking.done", "thinking": text}
    return item | ({"fidelity": fidelity} if fidelity else {})


PNG = {"type": "image_url.done", "image_url": "data:image/png;base64,AA=="}


# the request line


@pytest.mark.parametrize(
    ("base", "name", "url"),
    [
        ("https://h.example", "gemini-x", "https://h.example/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        ("https://h.example/", "models/x", "https://h.example/v1beta/models/x:streamGenerateContent?alt=sse"),
        ("https://h.example/v1", "tunedModels/x", "https://h.example/v1/tunedModels/x:streamGenerateContent?alt=sse"),
        ("https://h.example/v1beta?a=1", "x", "https://h.example/v1beta/models/x:streamGenerateContent?a=1&alt=sse"),
    ],
)  # fmt: skip
def test_the_model_stands_in_the_path(base: str, name: str, url: str) -> None:
    assert request(CONTENT, [user(TEXT)], name, Target(base)).url == url


def test_interactions_have_one_path_and_store_nothing() -> None:
    assert request(STEPS, [user(TEXT)]).url == f"https://{HOST}/v1beta/interactions"
    assert body(STEPS) == {
        "model": "gemini-x",
        "stream": True,
        "store": False,
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "a"}]}],
    }
    assert body(CONTENT) == {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}
    assert google.ENDPOINT.auth("k") == (("x-goog-api-key", "k"),)


@CODECS
def test_models_come_in_pages(codec: Any) -> None:
    assert codec.list_models(TARGET).url == f"https://{HOST}/v1beta/models"
    assert codec.list_models(TARGET, "a b").url == f"https://{HOST}/v1beta/models?pageToken=a%20b"
    page = {"models": [{"name": "models/a"}, {"name": "b"}], "nextPageToken": "n"}
    assert codec.models(page) == (["a", "b"], "n")
    assert codec.models({"models": []}) == codec.models({}) == ([], "")
    assert codec.models({"nextPageToken": "n"}) == ([], "n")
    odds: list[dict[str, Any]] = [{"data": []}, {"models": None}, {"models": {}}]
    for odd in odds:
        with pytest.raises((LookupError, TypeError)):
            codec.models(odd)
    assert codec.models({"publisherModels": [{"name": "publishers/google/models/c"}]}) == (
        ["c"],
        "",
    )


# config


@pytest.mark.parametrize(
    ("config", "content", "interaction"),
    [
        (
            {"max_tokens": 5, "top_p": 0.5, "stop_sequences": ["E"], "seed": 3},
            {"generationConfig": {"maxOutputTokens": 5, "topP": 0.5, "stopSequences": ["E"], "seed": 3}},
            {"generation_config": {"max_output_tokens": 5, "top_p": 0.5, "stop_sequences": ["E"], "seed": 3}},
        ),
        (
            {"system_prompt": "Be brief."},
            {"systemInstruction": {"parts": [{"text": "Be brief."}]}},
            {"system_instruction": "Be brief."},
        ),
        (
            {"thinking_summary": True},
            {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
            {"generation_config": {"thinking_summaries": "auto"}},
        ),
        (
            {"thinking_summary": False},
            {"generationConfig": {"thinkingConfig": {"includeThoughts": False}}},
            {"generation_config": {"thinking_summaries": "none"}},
        ),
        (
            {"tools": [{"name": "f", "description": "d", "parameters": SCHEMA}, {"name": "g"}]},
            {"tools": [{"functionDeclarations": [
                {"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}, {"name": "g"}]}]},
            {"tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
                {"type": "function", "name": "g"}]},
        ),
        (
            {"tools": [{"name": "f"}], "tool_choice": ["f"]},
            {"tools": [{"functionDeclarations": [{"name": "f"}]}],
             "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
            {"tools": [{"type": "function", "name": "f"}],
             "generation_config": {"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}}}},
        ),
        ({"tool_choice": "required"}, {}, {}),
        (
            {"image_config": {"aspect_ratio": "1:1", "image_size": "2K"}},
            {"generationConfig": {"imageConfig": {"aspectRatio": "1:1", "imageSize": "2K"}}},
            {"response_format": [{"type": "text"}, {"type": "image", "aspect_ratio": "1:1", "image_size": "2K"}]},
        ),
        (
            {"output_schema": SCHEMA},
            {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
            {"response_format": [{"type": "text", "mime_type": "application/json", "schema": SCHEMA}]},
        ),
        ({"extra_body": {"labels": {"a": "b"}}}, {"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
        ({"prompt_caching": "enable", "fast_mode": False, "trace_id": "t"}, {}, {}),
    ],
)  # fmt: skip
def test_a_setting_becomes_its_field(config: Any, content: Any, interaction: Any) -> None:
    assert body(CONTENT, **config) == body(CONTENT) | content
    assert body(STEPS, **config) == body(STEPS) | interaction


@pytest.mark.parametrize(
    ("choice", "mode", "word"),
    [("auto", "AUTO", "auto"), ("none", "NONE", "none"), ("required", "ANY", "any")],
)
def test_a_choice_of_tools_is_a_mode(choice: str, mode: str, word: str) -> None:
    config: dict[str, Any] = {"tools": [{"name": "f"}], "tool_choice": choice}
    assert body(CONTENT, **config)["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert body(STEPS, **config)["generation_config"] == {"tool_choice": word}


LEVELS = ("none", "low", "medium", "high", "xhigh", "max")
FOUR = ("minimal", "low", "medium", "high", "high", "high")
THREE = ("low", *FOUR[1:])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemini-3.1-flash-image", ("minimal", "minimal", "high", "high", "high", "high")),
        ("Gemini-3-Pro-preview", ("low", "low", "high", "high", "high", "high")),
        ("gemini-3.1-pro", THREE),
        ("gemini-3.7-flash", THREE),
        ("gemini-3.8-flash", THREE),
        ("gemini-4-argon", THREE),
        ("gemini-3.5-flash", FOUR),
    ],
)
def test_a_level_is_the_nearest_that_a_model_has(name: str, words: tuple[str, ...]) -> None:
    for level, word in zip(LEVELS, words, strict=True):
        content = body(CONTENT, name=name, thinking_level=level)["generationConfig"]
        assert content == {"thinkingConfig": {"thinkingLevel": word.upper()}}
        interaction = body(STEPS, name=name, thinking_level=level)
        assert interaction["generation_config"] == {"thinking_level": word}


@CODECS
@pytest.mark.parametrize(
    ("config", "parameter"),
    [
        ({"temperature": 1.0}, "temperature"),
        ({"prompt_caching": "disable"}, "prompt_caching"),
        ({"prompt_caching": "enhance"}, "prompt_caching"),
    ],
)
def test_what_the_models_do_not_take_is_refused(codec: Any, config: Any, parameter: str) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        request(codec, [user(TEXT)], **config)
    assert caught.value.parameter == parameter


def test_only_interactions_have_a_tier() -> None:
    assert body(STEPS, fast_mode=True)["service_tier"] == "priority"
    with pytest.raises(errors.UnsupportedParameterError):
        body(CONTENT, fast_mode=True)


# items


def test_each_item_is_a_part() -> None:
    data = {"type": "inline_data.done", "data": b"\0", "mime_type": "audio/wav"}
    assert parts(user(TEXT, PNG, data)) == [
        {"text": "a"},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inlineData": {"mimeType": "audio/wav", "data": "AA=="}},
    ]
    drawn = {"type": "inline_thinking.done", "data": b"\0", "mime_type": "image/png"}
    assert parts(model(thinking("hm"), drawn, TEXT)) == [
        {"text": "hm", "thought": True},
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thought": True},
        {"text": "a"},
    ]


def test_each_item_is_a_step_or_a_block() -> None:
    data = {"type": "inline_data.done", "data": b"\0", "mime_type": "application/pdf"}
    empty = {"type": "text.done", "text": ""}
    assert steps(user(TEXT, empty, PNG, data)) == [
        {
            "type": "user_input",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "AA==", "mime_type": "image/png"},
                {"type": "document", "data": "AA==", "mime_type": "application/pdf"},
            ],
        }
    ]


def test_results_find_their_calls_name_and_stand_in_a_content_of_their_own() -> None:
    made = body(CONTENT, [model(call()), user(result(images=[PNG["image_url"]]), TEXT)])["contents"]
    assert made == [
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"q": 1}}, **PLACEHOLDER}]},
        {"role": "user", "parts": [{"functionResponse": {
            "id": "c1", "name": "f", "response": {"result": "7"},
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}}]},
        {"role": "user", "parts": [{"text": "a"}]},
    ]  # fmt: skip
    assert parts(user(result("lost")))[0]["functionResponse"]["name"] == "lost"


def test_an_id_made_of_the_name_is_not_sent_where_none_came() -> None:
    first, second = call("f", "f"), call("f", "f_2")
    made = parts(model(first, second), user(result("f"), result("f_2")))
    named = [part.get("functionCall") or part["functionResponse"] for part in made]
    assert [each["name"] for each in named] == ["f"] * 4
    assert not any("id" in each for each in named)


def test_interactions_always_have_ids() -> None:
    assert steps(model(call("f", "f")), user(result("f", images=[PNG["image_url"]]))) == [
        {"type": "thought", "signature": stand_in_signature},
        {"type": "function_call", "id": "f", "name": "f", "arguments": {"q": 1}},
        {
            "type": "function_result",
            "call_id": "f",
            "name": "f",
            "result": [
                {"type": "text", "text": "7"},
                {"type": "image", "data": "AA==", "mime_type": "image/png"},
            ],
        },
    ]


# signatures

SIGNED = {"thoughtSignature": "S"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        # a call without a signature takes that of the nearest thought before it
        (
            [thinking("hm", **own(CONTENT, signature="S")), call()],
            [{"text": "hm", "thought": True}, {"functionCall": "c1", **SIGNED}],
        ),
        # or the stand-in; a call has its own
        ([call(), call(call_id="c2")], [{"functionCall": "c1", **PLACEHOLDER}, {"functionCall": "c2"}]),
        ([call(**own(CONTENT, signature="S"))], [{"functionCall": "c1", **SIGNED}]),
        # of somebody else's model
        ([call(wire="x", host="y", signature="T")], [{"functionCall": "c1", **PLACEHOLDER}]),
        ([call(wire=CONTENT.name, host="elsewhere", signature="T")], [{"functionCall": "c1", **PLACEHOLDER}]),
        # a thought hands its signature to what follows it
        (
            [thinking("hm", **own(CONTENT, signature="S")), TEXT],
            [{"text": "hm", "thought": True}, {"text": "a", **SIGNED}],
        ),
        ([thinking("", **own(CONTENT, signature="S")), TEXT], [{"text": "a", **SIGNED}]),
        ([{**TEXT, "fidelity": own(CONTENT, signature="S")}], [{"text": "a", **SIGNED}]),
        ([thinking(""), TEXT], [{"text": "a"}]),
    ],
)  # fmt: skip
def test_a_signature_stands_where_the_api_looks_for_it(items: Any, expected: Any) -> None:
    made = parts(model(*items))
    for part in made:
        if "functionCall" in part:
            part["functionCall"] = part["functionCall"]["id"]
    assert made == expected


THOUGHT = {"type": "thought", "signature": "S"}
STAND_IN = {"type": "thought", "signature": stand_in_signature}
SAID = {"type": "model_output", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([TEXT], [STAND_IN, SAID]),
        ([{**TEXT, "fidelity": own(STEPS, signature="S")}], [THOUGHT, SAID]),
        (
            [thinking("hm", **own(STEPS, signature="S")), TEXT],
            [{**THOUGHT, "summary": [{"type": "text", "text": "hm"}]}, SAID],
        ),
        (
            [thinking("hm"), {**TEXT, "fidelity": own(STEPS, signature="S")}],
            [{**THOUGHT, "summary": [{"type": "text", "text": "hm"}]}, THOUGHT, SAID],
        ),
        (
            [TEXT, thinking("hm", **own(STEPS, signature="S"))],
            [STAND_IN, SAID, {**THOUGHT, "summary": [{"type": "text", "text": "hm"}]}],
        ),
        ([{**TEXT, "fidelity": {"wire": "x", "host": "y", "signature": "T"}}], [STAND_IN, SAID]),
    ],
)
def test_a_turn_of_the_model_opens_with_a_signed_thought(items: Any, expected: Any) -> None:
    made = steps(model(*items))
    assert [json.dumps(each, sort_keys=True) for each in made] == [
        json.dumps(each, sort_keys=True) for each in expected
    ]


@CODECS
def test_what_built_in_tools_left_goes_back_in_front_of_its_item(codec: Any) -> None:
    aside = (
        {"executableCode": {"code": "1"}} if codec is CONTENT else {"type": "code_execution_call"}
    )
    item = {**TEXT, "fidelity": own(codec, beside=[aside], signature="S")}
    made = parts(model(item)) if codec is CONTENT else steps(model(item))
    assert aside in made
    assert made.index(aside) < len(made) - 1


@CODECS
def test_thinking_alone_cannot_be_sent(codec: Any) -> None:
    with pytest.raises(errors.InvalidMessageError, match=r"messages\[1\] leaves nothing"):
        request(codec, [user(TEXT), model(thinking("hm", **own(codec, signature="S")))])


@CODECS
@pytest.mark.parametrize("url", ["https://a/b.png", "data:image/png,raw"])
def test_a_picture_has_to_be_inline(codec: Any, url: str) -> None:
    image = {"type": "image_url.done", "image_url": url}
    assert codec.needs([user(image)]) == ([url] if url.startswith("http") else [])
    with pytest.raises(errors.InvalidMessageError) as caught:
        request(codec, [user(image)])
    assert caught.value.item_type == "image_url"


@CODECS
def test_an_embedding_is_carried_by_no_message(codec: Any) -> None:
    with pytest.raises(errors.InvalidMessageError) as caught:
        request(codec, [model({"type": "embedding.done", "embedding": [1.0]})])
    assert caught.value.item_type == "embedding.done"


# speech and embeddings


def speech(codec: Any, name: str, text: str, *voices: Any, **config: Any) -> dict[str, Any]:
    chosen = {"tts_config": list(voices)} if voices else {}
    item = {"type": "text.done", "text": text}
    return body(codec, [user(TEXT), user(item)], name=name, **chosen, **config)


def test_one_voice_reads_the_last_message() -> None:
    made = speech(CONTENT, "gemini-3.8-flash-tts", "Hello", max_tokens=9, system_prompt="dropped")
    voice = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}}
    assert made == {
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": voice,
            "maxOutputTokens": 9,
        },
    }
    made = speech(STEPS, "gemini-3.8-flash-TTS", "Hello", {"voice": "Puck"}, max_tokens=9)
    assert made["response_format"] == {"type": "audio"}
    assert made["generation_config"] == {
        "max_output_tokens": 9,
        "speech_config": [{"voice": "Puck"}],
    }
    assert made["input"] == [{"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}]


TWO = ({"voice": "Kore", "speaker": "Ann"}, {"voice": "Puck", "speaker": "Bob"})
SCRIPT = "\nAnn: Hi.\nHow are you?\nBob: Well: thanks."


def test_two_voices_read_a_script() -> None:
    made = speech(CONTENT, "gemini-3.8-flash-tts", SCRIPT, *TWO)
    assert made["contents"][0]["parts"] == [
        {"text": "Hi.\nHow are you?", "speechMetadata": {"speaker": "Ann"}},
        {"text": "Well: thanks.", "speechMetadata": {"speaker": "Bob"}},
    ]
    speakers = made["generationConfig"]["speechConfig"]["multiSpeakerVoiceConfig"]
    assert [each["speaker"] for each in speakers["speakerVoiceConfigs"]] == ["Ann", "Bob"]
    older = speech(CONTENT, "gemini-3.1-flash-tts", SCRIPT, *TWO)
    assert older["contents"][0]["parts"] == [{"text": SCRIPT}]
    content = speech(STEPS, "gemini-3.8-flash-tts", SCRIPT, *TWO)["input"][0]["content"]
    assert [each["annotations"][0]["speaker"] for each in content] == ["Ann", "Bob"]


@CODECS
@pytest.mark.parametrize("voices", [[{"voice": "A"}] * 3, [{"voice": "A"}, {"voice": "B"}]])
def test_voices_that_cannot_be_told_apart_are_refused(codec: Any, voices: list[Any]) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        speech(codec, "gemini-3.8-flash-tts", "Hello", *voices)
    assert caught.value.parameter == "tts_config"


@CODECS
def test_what_cannot_be_read_aloud_is_refused(codec: Any) -> None:
    with pytest.raises(errors.UnsupportedContentError) as content:
        body(codec, [user(PNG)], name="gemini-3.8-flash-tts")
    assert content.value.item_type == "image_url.done"
    with pytest.raises(errors.InvalidMessageError, match="Ann: or Bob:") as message:
        speech(codec, "gemini-3.8-flash-tts", "Hello\nAnn: Hi", *TWO)
    assert (message.value.item_type, message.value.message_index) == ("text", 1)


@CODECS
def test_embeddings_are_one_batch(codec: Any) -> None:
    config: Any = {"embedding_config": {"dimensions": 8}}
    made = request(codec, [user(TEXT), user(TEXT)], "gemini-embedding-2", **config)
    assert made.url == f"https://{HOST}/v1beta/models/gemini-embedding-2:batchEmbedContents"
    one = {
        "model": "models/gemini-embedding-2",
        "outputDimensionality": 8,
        "content": {"role": "user", "parts": [{"text": "a"}]},
    }
    assert json.loads(made.body) == {"requests": [one, one]}
