"""What becomes of an answer that is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp import errors
from mmsp.codecs.http_error import Complaint, complaint, http_error, stream_error

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def error_of(
    status: int = 400, body: Any = b"", secrets: tuple[str, ...] = (), **headers: str
) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return http_error(status, named, raw, client="C", now=NOW, secrets=secrets)


@pytest.mark.parametrize(
    ("body", "message", "code", "error_type"),
    [
        ({"error": {"message": "m", "type": "t", "param": None, "code": "c"}}, "m", "c", "t"),
        ({"error": {"message": "m", "type": "", "code": "c"}}, "m", "c", "c"),
        ({"error": {"code": 402, "message": "m", "metadata": {}}}, "m", 402, None),
        (
            {"type": "error", "error": {"type": "t", "message": "m"}, "request_id": "r"},
            "m",
            None,
            "t",
        ),
        ({"error": {"code": 400, "message": "m", "status": "INVALID"}}, "m", 400, "INVALID"),
        ([{"error": {"code": 400, "message": "m", "status": "INVALID"}}], "m", 400, "INVALID"),
        ({"code": "c", "error": "m"}, "m", "c", "c"),
        ({"error": True, "message": "m"}, "m", None, None),
        ({"error": {"detail": "m", "code": True}}, "m", None, None),
        ({"error": {"why": 1}}, '{"why": 1}', None, None),
        ({"error": ["m"]}, '["m"]', None, None),
        ({"error": {"message": "\ud83d", "type": "\ud83d", "code": "\ud83d"}}, "?", "?", "?"),
        ({"detail": "m"}, "m", None, None),
        (
            {"detail": [{"loc": ["body"], "msg": "m"}]},
            '[{"loc": ["body"], "msg": "m"}]',
            None,
            None,
        ),
        ({"object": "error", "message": "m", "type": "t", "code": 400}, "m", 400, "t"),
        ({"type": "error", "message": "m"}, "m", None, None),
        ({"base_resp": {"status_code": 1004, "status_msg": "m"}}, "m", 1004, None),
        ({"base_resp": {"status_code": 1004}}, "", 1004, None),
    ],
)
def test_every_shape_of_error_object(
    body: Any, message: str, code: Any, error_type: str | None
) -> None:
    assert complaint(body) == Complaint(message, code, error_type)
    error = error_of(400, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    assert isinstance(error, errors.UpstreamError)
    assert str(error) == f"HTTP 400: {message or 'the provider gave no reason'}"
    assert (error.client, error.status, error.error_type) == ("C", 400, error_type)
    assert error.error == json.loads(json.dumps(body).replace("\\ud83d", "?"))


@pytest.mark.parametrize(
    "body",
    [None, 5, "m", [], [{}, {}], {}, {"error": None}, {"error": {}}, {"message": "m"},
     {"base_resp": {"status_code": 0}}, {"base_resp": 5}, {"choices": []}],
)  # fmt: skip
def test_what_reports_no_error_is_none(body: Any) -> None:
    assert complaint(body) is None


def test_the_status_alone_may_make_it_an_error() -> None:
    error = error_of(403, {"message": "m", "code": "denied"})
    assert (str(error), error.error_type) == ("HTTP 403: m", "denied")
    assert str(error_of(403, {"message": 5})) == 'HTTP 403: {"message": 5}'


def test_other_bodies_show_their_beginning() -> None:
    error = error_of(502, b"<html>\n <b>Bad</b>\xff" + b"x" * 999)
    assert str(error) == "HTTP 502: " + ("<html> <b>Bad</b>\ufffd" + "x" * 999)[:200]
    assert error.error is None
    assert str(error_of(502)) == "HTTP 502: the provider gave no reason"
    assert error_of(500, b"[" * 99999).error is None


def test_long_messages_are_cut() -> None:
    assert len(str(error_of(400, {"error": {"message": "m" * 99999}}))) == len("HTTP 400: ") + 4096


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (409, True), (422, False), (429, True),
     (500, True), (502, True), (503, True), (504, True), (529, True), (600, False)],
)  # fmt: skip
def test_whether_trying_again_makes_sense(status: int, retryable: bool) -> None:
    assert error_of(status).retryable is retryable
    assert error_of(status, x_should_retry="true").retryable is True
    assert error_of(status, X_Should_Retry="False").retryable is False
    assert error_of(status, x_should_retry="?").retryable is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "30"}, 30.0),
        ({"Retry_After": "1.5"}, 1.5),
        ({"retry_after": "3600", "retry_after_ms": "250"}, 0.25),
        ({"retry_after": "30", "retry_after_ms": "soon"}, 30.0),
        ({"retry_after": "30", "retry_after_ms": "-5"}, 30.0),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"retry_after": "Tue, 14 Nov 2023 22:12:20 GMT"}, 0.0),
        ({"retry_after": "tomorrow"}, None),
        ({"retry_after": "Tue, 14 Nov 99999 22:12:20 GMT"}, None),
    ],
)
def test_the_wait_asked_for(headers: Any, seconds: float | None) -> None:
    assert error_of(429, **headers).retry_after == seconds


def test_the_request_id() -> None:
    assert error_of(400, x_request_id="a", request_id="b").request_id == "a"
    assert error_of(400, {"request_id": "c"}, request_id="b").request_id == "b"
    assert error_of(400, {"error": {}, "request_id": "c"}).request_id == "c"
    assert error_of(400, {"request_id": 5}).request_id is None
    assert error_of(400, b"x").request_id is None
    for odd in ("two words", "caf\xe9", "x" * 201, "a\tb"):
        assert error_of(400, {"request_id": "c"}, x_request_id=odd).request_id == "c"


@pytest.mark.parametrize(
    ("location", "named"),
    [("https://user:pw@b.example/v1?key=1", "'b.example'"), ("/v2", "same host"), ("", "same host"),
     ("http://[", "same host")],
)  # fmt: skip
def test_a_redirect_names_where_it_leads_and_is_not_followed(location: str, named: str) -> None:
    error = error_of(307, b"<html>", location=location)
    assert named in str(error)
    assert "pw" not in str(error)
    assert "base_url" in str(error)
    assert not error.retryable


def test_the_key_is_masked_wherever_it_is_echoed() -> None:
    key = "sk-secret"
    echoed = {"error": {"message": f"bad key {key}", "code": key}, "more": [{key: [key, 5]}]}
    error = error_of(401, echoed, secrets=(key, ""))
    assert key not in repr((str(error), vars(error)))
    assert str(error) == "HTTP 401: bad key ***"
    assert str(error_of(401, f"no {key}".encode(), secrets=(key,))) == "HTTP 401: no ***"


@pytest.mark.parametrize(
    ("code", "error_type", "retryable"),
    [
        (429, None, True),
        ("503", None, True),
        (401, "overloaded_error", False),
        (None, "overloaded_error", True),
        ("rate_limit_exceeded", None, True),
        (None, "invalid_request_error", False),
        (1004, None, False),
        (None, None, False),
        ("٥٠٠", None, False),
    ],
)
def test_an_error_inside_a_stream(code: Any, error_type: str | None, retryable: bool) -> None:
    error = stream_error(Complaint("m", code, error_type), client="C")
    assert isinstance(error, errors.ProviderStreamError)
    assert (str(error), error.client, error.code, error.error_type) == ("m", "C", code, error_type)
    assert error.retryable is retryable


def test_an_error_without_words() -> None:
    assert "no reason" in str(stream_error(Complaint(""), client="C"))


@given(st.integers(300, 599), st.binary(max_size=50), st.text(max_size=20))
def test_any_answer_makes_an_error(status: int, body: bytes, value: str) -> None:
    names = ("retry-after", "retry-after-ms", "location", "x-request-id", "x-should-retry")
    error = http_error(status, [(name, value) for name in names], body, client="C", now=NOW)
    assert error.status == status
