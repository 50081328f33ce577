"""What each vendor's Responses server is told, and how it is heard, where they differ."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mmsp import errors
from mmsp.dialects import deepseek, minimax, openai, responses_compatible
from mmsp.types import UniMessage
from tests.message_words import assistant, image, result, text, thinking, tool_call, user
from tests.responses_words import (
    DIALECTS,
    OURS,
    Answer,
    Json,
    added,
    argued,
    call_added,
    call_done,
    completed,
    done,
    encode,
    event,
    in_short,
    input_of,
    message,
    mused,
    picture,
    said,
    summarized,
    thought,
)

LEVELS = ("none", "low", "medium", "high", "xhigh", "max")
COMPATIBLE, OFFICIAL, DEEPSEEK, MINIMAX = DIALECTS


def test_the_endpoints() -> None:
    seen = [
        (each.default_url, each.key_variable, each.url_variable)
        for each in (openai.ENDPOINT, deepseek.ENDPOINT, minimax.ENDPOINT)
    ]
    assert seen == [
        ("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("https://api.deepseek.com", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"),
        ("https://api.minimax.io/v1", "MINIMAX_API_KEY", "MINIMAX_BASE_URL"),
    ]
    assert responses_compatible.ENDPOINT is openai.ENDPOINT


@pytest.mark.parametrize("client", DIALECTS)
def test_what_every_request_carries(client: str) -> None:
    body = encode(user("hi"), dialect=DIALECTS[client], prompt_caching="enable", fast_mode=False)
    del body["input"]
    sealed = {"include": ["reasoning.encrypted_content"]} if client == OFFICIAL else {}
    assert body == {"model": "m", "stream": True, "store": False, **sealed}


AS_THEY_ARE = list(LEVELS)
AT_LEAST_LOW = ["low", *LEVELS[1:]]
EFFORTS: list[tuple[str, str, list[str]]] = [
    *((client, "gpt-5.5", AS_THEY_ARE) for client in (COMPATIBLE, OFFICIAL)),
    *((client, "gpt-6", AT_LEAST_LOW) for client in (COMPATIBLE, OFFICIAL)),
    *((client, "openai/GPT-6-astra", AT_LEAST_LOW) for client in (COMPATIBLE, OFFICIAL)),
    *((client, "GPT-6-Luna-mini", AS_THEY_ARE) for client in (COMPATIBLE, OFFICIAL)),
    (DEEPSEEK, "deepseek-flash", ["none", "low", "high", "high", "high", "max"]),
    (MINIMAX, "MiniMax-M3", ["none", "low", "medium", "high", "high", "high"]),
    (MINIMAX, "MiniMax-M3.1", AT_LEAST_LOW),
]


@pytest.mark.parametrize(("client", "model", "efforts"), EFFORTS)
def test_the_effort_of_each_level(client: str, model: str, efforts: list[str]) -> None:
    def effort(level: str) -> Any:
        return encode(user("q"), model=model, dialect=DIALECTS[client], thinking_level=level)

    assert [effort(level)["reasoning"] for level in LEVELS] == [{"effort": e} for e in efforts]


SUMMARIES: list[tuple[str, Json | None, Json]] = [
    (COMPATIBLE, None, {"effort": "high", "summary": "concise"}),
    (OFFICIAL, {"summary": "concise"}, {"effort": "high", "summary": "concise"}),
    (DEEPSEEK, {"summary": "concise"}, {"effort": "high", "summary": "concise"}),
    (MINIMAX, None, {"effort": "high"}),
]


@pytest.mark.parametrize(("client", "alone", "beside"), SUMMARIES)
def test_a_summary_is_asked_for_alone_or_with_a_level_or_never(
    client: str, alone: Json | None, beside: Json
) -> None:
    def reasoning(**config: Any) -> Any:
        return encode(user("q"), dialect=DIALECTS[client], **config).get("reasoning")

    assert reasoning(thinking_summary=True) == alone
    assert reasoning(thinking_summary=True, thinking_level="high") == beside
    assert reasoning(thinking_summary=False) is None
    assert reasoning(thinking_summary=False, thinking_level="high") == {"effort": "high"}


TEMPERATURES: list[tuple[str, float, Any]] = [
    *((COMPATIBLE, value, value) for value in (0, 0.5, 1.0, 2)),
    *((client, value, None) for client in (OFFICIAL, DEEPSEEK) for value in (1, 1.0)),
    *((client, value, "refused") for client in (OFFICIAL, DEEPSEEK) for value in (0, 0.99, 2)),
    *((MINIMAX, value, value) for value in (0, 0.0, 0.5, 1)),
    *((MINIMAX, value, "refused") for value in (-0.1, 1.01, 2)),
]


@pytest.mark.parametrize(("client", "value", "sent"), TEMPERATURES)
def test_the_temperatures_of_each_vendor(client: str, value: float, sent: Any) -> None:
    if sent == "refused":
        with pytest.raises(errors.UnsupportedParameterError) as caught:
            encode(user("q"), dialect=DIALECTS[client], temperature=value)
        assert caught.value.parameter == "temperature"
    else:
        body = encode(user("q"), dialect=DIALECTS[client], temperature=value)
        assert body.get("temperature") == sent


ALL = tuple(DIALECTS)
TAKEN: list[tuple[str, str, Any]] = [
    *((client, "m", choice) for client in ALL for choice in ("auto", "none")),
    *((client, "m", choice) for client in (COMPATIBLE, OFFICIAL) for choice in ("required", ["f"])),
    (MINIMAX, "MiniMax-M3.1", "auto"),
]
REFUSED: list[tuple[str, str, str, Any]] = [
    *((client, "m", "tool_choice", it) for client in (DEEPSEEK, MINIMAX) for it in ("required", ["f"])),
    (MINIMAX, "minimax-m3.1-x", "tool_choice", "none"),
    (MINIMAX, "MiniMax-M3.1", "fast_mode", True),
    (DEEPSEEK, "deepseek-flash", "fast_mode", True),
    *((client, "m", "prompt_caching", it) for client in ALL for it in ("disable", "enhance")),
    *((client, "m", "seed", 7) for client in ALL),
    *((client, "m", "stop_sequences", ["x"]) for client in ALL),
]  # fmt: skip


@pytest.mark.parametrize(("client", "model", "choice"), TAKEN)
def test_the_tool_choices_that_a_vendor_takes(client: str, model: str, choice: Any) -> None:
    body = encode(user("q"), model=model, dialect=DIALECTS[client], tool_choice=choice)
    sent = body["tool_choice"]
    assert (sent if isinstance(choice, str) else sent["type"]) == (
        choice if isinstance(choice, str) else "allowed_tools"
    )


@pytest.mark.parametrize(("client", "model", "parameter", "value"), REFUSED)
def test_what_a_vendor_refuses(client: str, model: str, parameter: str, value: Any) -> None:
    with pytest.raises(errors.UnsupportedParameterError) as caught:
        encode(user("q"), model=model, dialect=DIALECTS[client], **{parameter: value})
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("client", [COMPATIBLE, OFFICIAL, MINIMAX])
def test_fast_mode_is_a_tier(client: str) -> None:
    assert encode(user("q"), dialect=DIALECTS[client], fast_mode=True)["service_tier"] == "priority"


# ---- pictures


def png(side: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + side.to_bytes(4, "big") * 2
    return "data:image/png;base64," + base64.b64encode(head).decode()


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("model", ["x/GPT-5.6-mini", "gpt-5.5"])
@pytest.mark.parametrize("url", [png(6000), png(600), "https://x/large.png", "data:,x"])
def test_very_large_pictures_ask_for_high_detail(client: str, model: str, url: str) -> None:
    fine = client in (COMPATIBLE, OFFICIAL) and model != "gpt-5.5" and url == png(6000)
    expected = picture(url, **({"detail": "high"} if fine else {}))
    asked = [user(image(url)), user(result(images=[url]))]
    sent = input_of(*asked, model=model, dialect=DIALECTS[client])
    assert sent[0]["content"] == [expected]
    assert sent[1]["output"][1] == expected


BLIND = [
    "deepseek-v4-flash",
    "DeepSeek-V4-Pro",
    "x/y/deepseek-v4-pro-0813",
    "deepseek-v4-flash-1234",
]
SEEING = [
    "deepseek-flash",
    "deepseek-v4-flash-vision",
    "deepseek-v4-pro-123",
    "deepseek-v4-flash-12345",
]


@pytest.mark.parametrize(
    ("item", "item_type"),
    [
        (image("https://x/a.png"), "image_url"),
        (result(images=["https://x/a.png"]), "tool_result"),
    ],
)
def test_deepseeks_text_only_models_are_not_shown_pictures(item: Any, item_type: str) -> None:
    dialect = DIALECTS[DEEPSEEK]
    for model in BLIND:
        with pytest.raises(errors.UnsupportedContentError, match="no pictures") as caught:
            encode(user("q", item), model=model, dialect=dialect)
        assert caught.value.item_type == item_type
        assert encode(user("q", result()), model=model, dialect=dialect)
    for model in SEEING:
        assert "https://x/a.png" in str(input_of(user(item), model=model, dialect=dialect))


# ---- what is sent back

SEAL = {"encrypted_content": "E", "signature": "S", "format": "F"}
IN_SHORT = thinking("t", channel="summary", **SEAL, **OURS)
SEALED = thinking("t", encrypted_content="E", **OURS)
BARE: dict[str, Json] = {"type": "reasoning", "content": []}  # type: ignore[dict-item]
MINIMAX_T = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]}


@pytest.mark.parametrize(
    ("client", "item", "expected"),
    [
        (COMPATIBLE, IN_SHORT, summarized("t", **SEAL)),
        (COMPATIBLE, SEALED, thought("t", encrypted_content="E")),
        (OFFICIAL, IN_SHORT, summarized("t", **SEAL)),
        (OFFICIAL, SEALED, summarized("t", encrypted_content="E")),
        (OFFICIAL, thinking("t"), thought("t")),
        (DEEPSEEK, IN_SHORT, thought("t")),
        (DEEPSEEK, thinking("", **SEAL), thought()),
        (MINIMAX, IN_SHORT, MINIMAX_T),
        (MINIMAX, thinking(""), BARE),
    ],
)
def test_thinking_is_sent_back_as_the_vendor_wants_it(
    client: str, item: Any, expected: Json
) -> None:
    sent = input_of(assistant(item, "a"), dialect=DIALECTS[client])
    assert sent == [expected, message("assistant", "a")]


@pytest.mark.parametrize("client", DIALECTS)
def test_phases_and_built_in_items_go_back_to_those_who_send_them(client: str) -> None:
    search = {"type": "web_search_call", "id": "w"}
    came = text("a", phase="final_answer", beside=[search])
    kept = client in (COMPATIBLE, OFFICIAL)
    assert input_of(assistant(came), dialect=DIALECTS[client]) == (
        [search, message("assistant", "a", phase="final_answer")]
        if kept
        else [message("assistant", "a")]
    )


@pytest.mark.parametrize("client", DIALECTS)
def test_a_calls_output_follows_it_directly(client: str) -> None:
    turn: list[UniMessage] = [
        user("q"),
        assistant(thinking("t"), "a", tool_call()),
        user(result(), "next"),
    ]
    kinds = [item["type"] for item in input_of(*turn, dialect=DIALECTS[client])]
    assert kinds == [
        "message", "reasoning", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip


# ---- what is heard

REASONED = [
    added(0, "reasoning", id="r"),
    in_short(0, "s"),
    mused(0, "t"),
    done(0, "reasoning", id="r", summary=[{"text": "s"}], encrypted_content="E"),
    added(1, "message", id="m", phase="final_answer"),
    said(1, "a"),
    completed(),
]


@pytest.mark.parametrize(
    ("client", "thoughts", "fidelity", "phase"),
    [
        *(
            (
                client,
                "st",
                {"channel": "summary", "encrypted_content": "E"},
                {"phase": "final_answer"},
            )
            for client in (COMPATIBLE, OFFICIAL)
        ),
        (DEEPSEEK, "t", {}, {}),
        (MINIMAX, "t", {}, {}),
    ],
)
def test_which_thinking_is_read_and_what_is_kept_of_it(
    client: str, thoughts: str, fidelity: Json, phase: Json
) -> None:
    def ours(fields: Json) -> Json:
        return {**fields, **OURS} if fields else {}

    assert Answer(*REASONED, dialect=DIALECTS[client]).items() == [
        thinking(thoughts, **ours(fidelity)),
        text("a", **ours(phase)),
    ]


@pytest.mark.parametrize(
    ("client", "item", "fidelity"),
    [
        (COMPATIBLE, {"content": [{"text": "t"}]}, {}),
        (OFFICIAL, {"content": [{"text": "t"}]}, {"channel": "content"}),
        (OFFICIAL, {"content": [], "encrypted_content": "E"}, {"encrypted_content": "E"}),
        (OFFICIAL, {"content": [{"text": "t"}], "summary": [{}]}, {"channel": "summary"}),
    ],
)
def test_the_channel_that_thinking_came_in(client: str, item: Json, fidelity: Json) -> None:
    events = [mused(0, "t"), done(0, "reasoning", **item), said(1, "a")]
    expected = thinking("t", **({**fidelity, **OURS} if fidelity else {}))
    assert Answer(*events, dialect=DIALECTS[client]).items() == [expected, text("a")]


@pytest.mark.parametrize("client", DIALECTS)
def test_an_empty_phase_is_kept_for_openai_alone(client: str) -> None:
    answer = Answer(added(0, "message", phase=""), said(0, "a"), dialect=DIALECTS[client])
    assert answer.items() == [text("a", **({"phase": "", **OURS} if client == OFFICIAL else {}))]


def test_minimax_calls_are_read_whole_from_their_items() -> None:
    answer = Answer(dialect=DIALECTS[MINIMAX])
    answer.feed(
        call_added(0),
        argued(0, '{"wrong'),
        event("function_call_arguments.done", output_index=0, arguments="[]"),
    )
    assert answer.sent() == []
    answer.feed(
        call_done(0, arguments='{"x":1}'),
        call_done(1, "c2", arguments=None),
        call_done(2, "c3", arguments=""),
        completed(usage={"input_tokens": 3, "input_tokens_details": None}),
    )
    assert answer.items() == [
        tool_call("c1", arguments={"x": 1}),
        tool_call("c2"),
        tool_call("c3"),
    ]
    usage: Any = answer.assembler.usage_metadata
    assert (usage["prompt_tokens"], usage["response_tokens"]) == (3, None)
    assert answer.assembler.finish_reason == "tool_call"


def test_minimax_forgets_a_call_that_was_cut_off() -> None:
    answer = Answer(said(0, "a"), call_added(1), argued(1, "{}"), dialect=DIALECTS[MINIMAX])
    answer.feed(completed("incomplete"))
    assert answer.items() == [text("a")]
    assert answer.assembler.finish_reason == "length"
