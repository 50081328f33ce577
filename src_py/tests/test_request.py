"""Requests and targets: what they refuse, how they merge headers, what their `repr` hides."""

from __future__ import annotations

from typing import Any

import pytest

from mmsp import AutoLLMClient, Limits, RoutingError
from mmsp.request import HttpRequest, Target
from mmsp.testing import ScriptedProvider
from mmsp.transport import Proxies, Route

URL = "https://api.test/v1"


# what HTTP cannot carry


@pytest.mark.parametrize("bad", ["\r", "\n", "\0", "a\r\nx-admin: 1", "a\nb", "key\n"])
def test_a_header_value_that_would_end_its_line_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="line break or a NUL") as caught:
        HttpRequest("GET", URL, (("x-name", bad),))
    assert "x-admin" not in str(caught.value)


@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "a:", "a\r\nb", "a\n", "ä", "(a)", "a\0", ":authority"]
)
def test_what_is_no_header_name_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="is not a header name"):
        HttpRequest("GET", URL, ((bad, "value"),))


def test_a_header_value_outside_of_latin_1_is_refused() -> None:
    HttpRequest("GET", URL, (("x", "grün"),))
    with pytest.raises(ValueError, match="HTTP cannot carry"):
        HttpRequest("GET", URL, (("x", "日本"),))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.test/v1",
        "//api.test/v1",
        "ftp://api.test/v1",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "https://api.test:port/v1",
        "https://api.test:99999/v1",
        "https://api.test:0/v1",
        "https://[::1/v1",
        "https://api.test/a b",
        "https://api.test/\r\nx: y",
        "https://api.test/\x00",
        "https://api.test/\x7f",
        "https://a..ü.test/v1",
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        HttpRequest("GET", url)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"api_key": "a\nb"}, "line break"),
        ({"api_key": "a-key\r\n"}, "line break"),
        ({"api_key": "schlüssel-日本"}, "HTTP cannot carry"),
        ({"default_headers": {"x\r\ny": "z"}}, "is not a header name"),
        ({"default_headers": {"x": "y\r\nz: 1"}}, "line break"),
        ({"base_url": "https://user:secret@api.test/v1"}, "may not hold a user and password"),
        ({"base_url": "localhost:8000/v1"}, "absolute"),
        ({"base_url": "http://localhost:port/v1"}, "ort"),
    ],
)
async def test_a_client_refuses_them_when_it_is_made(settings: dict[str, Any], error: str) -> None:
    with ScriptedProvider() as provider:
        arguments = {"api_key": "a-key", "base_url": provider.base_url, **settings}
        with pytest.raises(ValueError, match=error) as caught:
            AutoLLMClient("m", client_type="openai-chat", **arguments)
        assert not isinstance(caught.value, RoutingError)
        assert settings.get("api_key", "?") not in str(caught.value)
        assert provider.connections == []


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"api_key": 3}, "api_key is a string, not int"),
        ({"base_url": b"https://a"}, "base_url is a string, not bytes"),
        ({"default_headers": ["a"]}, "default_headers is a mapping"),
        ({"default_headers": {"a": 1}}, "default_headers\\['a'\\] is no string"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(settings: dict[str, Any], error: str) -> None:
    arguments = {"api_key": "a-key", "base_url": "https://api.test", **settings}
    with pytest.raises(TypeError, match=error):
        AutoLLMClient("m", client_type="openai-chat", **arguments)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": ""},
        {"model": None},
        {"max_retries": -1},
        {"max_retries": True},
        {"max_retries": 1.5},
    ],
)
def test_a_model_or_number_that_is_none_is_refused(settings: dict[str, Any]) -> None:
    arguments = {"model": "m", "client_type": "openai-chat", "api_key": "k", **settings}
    with pytest.raises(ValueError, match=r"model is the id|max_retries is a number"):
        AutoLLMClient(**arguments)


@pytest.mark.parametrize(
    "limits", [{"event_bytes": 1.5}, {"image_redirects": 0.5}, {"head_bytes": 0}]
)
def test_a_limit_is_a_whole_number(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(limits))} must be a"):
        Limits(**limits)


# merging


def test_the_callers_headers_win_whatever_their_case() -> None:
    target = Target(URL, (("Authorization", "Bearer a"), ("X-A", "ours")), (("x-a", "theirs"),))
    request = target.request("POST", "/x", (("X-A", "codec"), ("X-B", "codec")), b"body")
    assert request.headers == (
        ("x-a", "theirs"),
        ("X-B", "codec"),
        ("Authorization", "Bearer a"),
    )
    assert (request.method, request.url, request.body) == ("POST", f"{URL}/x", b"body")


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.test/v1", "https://api.test/v1/chat"),
        ("https://api.test/v1/", "https://api.test/v1/chat"),
        ("https://api.test", "https://api.test/chat"),
        ("https://api.test/v1?version=2", "https://api.test/v1/chat?version=2"),
        ("https://api.test/v1#part", "https://api.test/v1/chat"),
        ("HTTPS://API.test/V1", "https://API.test/V1/chat"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat"),
    ],
)
def test_a_path_goes_below_the_base(base: str, url: str) -> None:
    assert Target(base).url("/chat") == url


@pytest.mark.parametrize(
    ("base", "host"),
    [
        ("https://API.test/v1", "api.test"),
        ("https://api.test:8443", "api.test:8443"),
        ("https://user:secret@api.test", "api.test"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_the_host_of_a_target(base: str, host: str) -> None:
    assert Target(base).host == host


# on the wire


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://api.test", "api.test", "/"),
        ("http://api.test:80/a", "api.test", "/a"),
        ("https://api.test:443/a", "api.test", "/a"),
        ("http://api.test:443/a", "api.test:443", "/a"),
        ("http://API.test:8000/A", "api.test:8000", "/A"),
        ("http://[::1]/a", "[::1]", "/a"),
        ("http://[::1]:8000/a", "[::1]:8000", "/a"),
        ("http://bücher.test/a", "xn--bcher-kva.test", "/a"),
        ("http://user:secret@api.test/a", "api.test", "/a"),
        ("http://api.test/a/../b//c", "api.test", "/a/../b//c"),
        ("http://api.test/ü?q=ü", "api.test", "/%C3%BC?q=%C3%BC"),
        ("http://api.test/%2F?q=%26&r", "api.test", "/%2F?q=%26&r"),
        ("http://api.test/a:b@c?x=/?y", "api.test", "/a:b@c?x=/?y"),
        ("http://api.test?q=1", "api.test", "/?q=1"),
        ("http://api.test/a#part", "api.test", "/a"),
    ],
)
def test_a_request_line_and_its_host(url: str, host: str, target: str) -> None:
    request = HttpRequest("GET", url)
    lines = Route.to(url, Proxies(), None).serialize(request).decode("ascii").split("\r\n")
    assert lines == [
        f"GET {target} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: mmsp",
        "Accept-Encoding: identity",
        "",
        "",
    ]


def test_a_body_has_its_length_and_no_other_framing() -> None:
    headers = (("Content-Length", "1"), ("Transfer-Encoding", "chunked"), ("X-A", "é"))
    for body in (b"", b"0123456789"):
        request = HttpRequest("POST", URL, headers, body)
        wire = Route.to(URL, Proxies(), None).serialize(request)
        top, _, rest = wire.partition(b"\r\n\r\n")
        assert rest == body
        lines = top.decode("latin-1").split("\r\n")
        assert [line for line in lines if "ength" in line] == [f"Content-Length: {len(body)}"]
        assert "X-A: é" in lines
        assert "chunked" not in top.decode("latin-1")


# what is hidden


def test_no_repr_shows_a_header_a_body_a_password_or_a_query() -> None:
    url = "https://user:s3cret@api.test:8443/v1?key=s3cret#s3cret"
    headers = (("Authorization", "Bearer s3cret"),)
    shown = [
        repr(HttpRequest("POST", url, headers, b"s3cret")),
        repr(Target(url, headers, headers)),
        repr(Route.to(url, Proxies({"https": "http://u:s3cret@proxy.test"}), None)),
        repr(Proxies({"https": "http://u:s3cret@proxy.test"})),
    ]
    assert not [each for each in shown if "s3cret" in each]
    assert shown[0] == "<HttpRequest POST https://api.test:8443/v1>"
    assert shown[1] == "<Target https://api.test:8443/v1>"
