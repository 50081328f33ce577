"""Errors cross a wire and come back as the class they were, whatever they carry."""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import errors
from mmsp.codecs.error_wire import error_from_wire, error_to_wire
from mmsp.errors import MMSPError, StreamAbortedError, UpstreamConnectionError, UpstreamError

USAGE = {"cached_tokens": 1, "prompt_tokens": 2, "thoughts_tokens": None, "response_tokens": 3}

# A value for every field that any class has, none of them the one that an absent field has.
FILLED: dict[str, Any] = {
    "client": "OpenAIChatClient", "model": "m", "client_type": "openai-chat", "path": "$[0].role",
    "api_key_env": "K", "base_url_env": "U", "base_url": "https://a.example", "item_type": "text.done",
    "message_index": 4, "parameter": "seed", "operation": "list_models", "status": 429,
    "error_type": "rate_limit", "request_id": "req_1", "retry_after": 1.5, "retryable": True,
    "error": {"message": "é", "inner": [1, {"a": None}]}, "phase": "tls", "seconds": 2.5, "code": "429",
    "missing": ("usage_metadata", "finish_reason"), "finish_reason": "length", "usage_metadata": USAGE,
    "tool_name": "t", "tool_call_id": "i", "raw_arguments_length": 3, "raw_arguments_preview": "{",
    "event": "{}", "reason": {"why": "shutting down"},
}  # fmt: skip

CLASSES = sorted(
    (
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, MMSPError) and kind.__name__ in errors.__all__ and kind is not MMSPError
    ),
    key=lambda kind: kind.__name__,
)


def fields_of(kind: type[MMSPError]) -> list[str]:
    wanted = inspect.signature(kind).parameters.values()
    return [each.name for each in wanted if each.kind is each.KEYWORD_ONLY]


def filled(kind: type[MMSPError], **changed: Any) -> MMSPError:
    return kind("what happened", **{name: FILLED[name] for name in fields_of(kind)} | changed)


def bare(kind: type[MMSPError]) -> MMSPError:
    """With nothing but what its constructor asks for."""
    wanted = inspect.signature(kind).parameters
    needed = [name for name in fields_of(kind) if wanted[name].default is inspect.Parameter.empty]
    return kind("", **{name: FILLED[name] for name in needed})


def over_the_wire(error: BaseException, **more: Any) -> MMSPError:
    told = json.loads(json.dumps(error_to_wire(error), allow_nan=False))
    assert told == msgspec.json.decode(msgspec.json.encode(error_to_wire(error)))
    return error_from_wire(told, client="MMSPClient", **more)


@pytest.mark.parametrize("make", [filled, bare])
@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_comes_back_as_it_was(kind: type[MMSPError], make: Any) -> None:
    error = make(kind)
    again = over_the_wire(error, status=500)
    assert type(again) is kind
    assert (again.args, vars(again)) == (error.args, vars(error))


@pytest.mark.parametrize("make", [filled, bare])
@pytest.mark.parametrize("kind", CLASSES)
def test_every_field_is_written_in_its_order_also_where_it_is_null(
    kind: type[MMSPError], make: Any
) -> None:
    assert list(error_to_wire(make(kind))) == ["type", "message", *fields_of(kind)]
    assert set(fields_of(kind)) == set(vars(make(kind)))


def test_the_documented_form() -> None:
    error = errors.IncompleteStreamError(
        "cut", client="C", missing=("usage_metadata",), finish_reason="stop"
    )
    assert json.dumps(error_to_wire(error)) == (
        '{"type": "IncompleteStreamError", "message": "cut", "client": "C", '
        '"missing": ["usage_metadata"], "finish_reason": "stop", "usage_metadata": null}'
    )


# ---- what is not ours


class _StatusError(Exception):
    status_code = 418


class _OddError(Exception):
    status = "teapot"

    def __str__(self) -> str:
        raise ZeroDivisionError

    @property
    def status_code(self) -> int:
        raise ZeroDivisionError


class _DerivedError(errors.UpstreamError):
    pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("k"), {"type": "KeyError", "message": "'k'"}),
        (ValueError(), {"type": "ValueError", "message": "ValueError"}),
        (asyncio.CancelledError(), {"type": "CancelledError", "message": "CancelledError"}),
        (_StatusError("tea"), {"type": "_StatusError", "message": "tea", "status": 418}),
        (_OddError(), {"type": "_OddError", "message": "_OddError"}),
        (RuntimeError("half \ud83d"), {"type": "RuntimeError", "message": "half \ufffd"}),
        (MMSPError(""), {"type": "MMSPError", "message": "MMSPError"}),
        (
            _DerivedError("d", client="C", status=503),
            {"type": "_DerivedError", "message": "d", "status": 503},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_that_is_not_ours(error: BaseException, told: dict[str, Any]) -> None:
    assert error_to_wire(error) == told
    again = over_the_wire(error)
    assert isinstance(again, UpstreamError)
    assert (again.error_type, str(again), again.error) == (told["type"], told["message"], told)
    assert (again.client, again.status) == ("MMSPClient", told.get("status"))


def test_no_traceback_and_no_cause_is_told() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = KeyError("inner")
    outer.add_note("noted")
    assert error_to_wire(outer) == {"type": "RuntimeError", "message": "outer"}


def test_a_refusal_of_the_server_itself_keeps_its_status_and_its_word() -> None:
    said = {"type": "AuthenticationError", "message": "no key"}
    error = error_from_wire(said, client="MMSPClient", status=401)
    assert isinstance(error, UpstreamError)
    assert vars(error) == {
        "client": "MMSPClient", "status": 401, "error_type": "AuthenticationError",
        "request_id": None, "retry_after": None, "retryable": False, "error": said,
    }  # fmt: skip
    assert error_from_wire(said, client="MMSPClient", status=503).retryable


# ---- fields that JSON cannot hold


class _Word(enum.StrEnum):
    STOP = "operator"


class _Unprintable:
    def __str__(self) -> str:
        raise ZeroDivisionError


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(100_000), [])


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("why", "why"),
        (_Word.STOP, "operator"),
        (True, True),
        (2**64, 2**64),
        (10**10_000, "so large an integer"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (("a", b"\xff", {1: {2}}), ["a", "\ufffd", {"1": [2]}]),
        ({"\ud800": "\udfff"}, {"\ufffd": "\ufffd"}),
        ("\ud83d\ude00", "😀"),
        (TimeoutError("5 s"), "5 s"),
        (TimeoutError(), "TimeoutError"),
        (_Unprintable(), "_Unprintable"),
        ("x" * 5000, "x" * 4096),
        ("é" * 4096, "é" * 2048),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reason_that_is_anything_is_told_as_json_can(reason: Any, written: Any) -> None:
    error = StreamAbortedError("stopped", client="C", reason=reason)
    assert error_to_wire(error)["reason"] == written
    again = over_the_wire(error)
    assert isinstance(again, StreamAbortedError)
    assert again.reason == written


@pytest.mark.parametrize(
    "reason", [LOOP, DEEP, {"a": DEEP}, ["x"] * 5000], ids=["loop", "deep", "in an object", "long"]
)
def test_a_reason_without_end_is_cut(reason: Any) -> None:
    assert len(json.dumps(error_to_wire(StreamAbortedError("s", client="C", reason=reason)))) < 9000


def test_an_error_with_a_whole_page_in_it_stays_small_enough_to_be_read() -> None:
    error = UpstreamError("m" * 10**6, client="C", status=500, error={"page": "é" * 10**6})
    assert len(json.dumps(error_to_wire(error), ensure_ascii=False).encode()) < 48 * 1024
    again = over_the_wire(error)
    assert isinstance(again, UpstreamError)
    assert again.error.startswith('{"page":"éé')


# ---- what a server may say instead

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([kind.__name__ for kind in CLASSES])
KEYS = st.sampled_from([*FILLED, "type", "message"])


@given(ANY_JSON, st.none() | st.integers(100, 599))
def test_anything_that_is_json_is_one_of_our_errors(said: Any, status: int | None) -> None:
    error = error_from_wire(said, client="MMSPClient", status=status)
    assert isinstance(error, UpstreamError)
    assert error.status == status or status is None
    assert str(error)


@given(NAMES, st.dictionaries(KEYS, ANY_JSON))
def test_a_field_of_another_type_costs_nothing_but_the_field(
    name: str, said: dict[str, Any]
) -> None:
    error = error_from_wire({**said, "type": name}, client="MMSPClient")
    assert type(error).__name__ == name
    assert set(vars(error)) == set(fields_of(type(error)))
    assert isinstance(error.retryable, bool)
    over_the_wire(error)  # and it can be handed on


@pytest.mark.parametrize("kind", CLASSES)
def test_an_object_with_nothing_but_its_type_is_the_error(kind: type[MMSPError]) -> None:
    error = error_from_wire({"type": kind.__name__}, client="MMSPClient", status=502)
    assert type(error) is kind
    assert str(error) == kind.__name__
    assert getattr(error, "client", "MMSPClient") == "MMSPClient"
    assert getattr(error, "status", 502) == 502


def test_what_makes_sense_to_try_again_is_kept_as_it_was_said() -> None:
    for retryable in (True, False):
        error = UpstreamConnectionError("x", client="C", phase="tls", retryable=retryable)
        assert over_the_wire(error).retryable is retryable
    assert error_from_wire({"type": "UpstreamConnectionError"}, client="C").retryable


def test_a_name_of_python_is_no_class_of_ours() -> None:
    for name in ("MMSPError", "ClientError", "ValueError", "_rebuild", "error", ""):
        error = error_from_wire({"type": name, "message": "m"}, client="C")
        assert type(error) is UpstreamError


@pytest.mark.parametrize("kind", CLASSES)
def test_a_secret_that_the_server_echoes_is_masked(kind: type[MMSPError]) -> None:
    said = error_to_wire(filled(kind))
    said = {key: f"{value} s3cret" if key != "type" else value for key, value in said.items()}
    said["error"] = {"deep": ["s3cret"]}
    error = error_from_wire(said, client="C", secrets=("s3cret",))
    assert "s3cret" not in f"{error} {vars(error)}"
