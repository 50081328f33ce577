"""Pictures given as URLs, on a wire that wants them inline: fetched, and by which rules."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme

from mmsp import AbortError, AbortSignal, AutoLLMClient, InvalidMessageError, Limits, MMSPError
from mmsp.registry import CLIENTS
from mmsp.testing import Answer, ScriptedProvider, drip, say, stall
from mmsp.types import UniMessage
from tests.asking import client_of, complete, events_of, shown

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
LIMIT = 0.2  # s


def picture(data: bytes = PNG, content_type: str | None = "image/png") -> Answer:
    return Answer(say(data), framing="length", content_type=content_type)


def asking(*urls: str) -> list[UniMessage]:
    text: Any = {"type": "text.done", "text": "What is it?"}
    images: list[Any] = [{"type": "image_url.done", "image_url": url} for url in urls]
    return [{"role": "user", "content_items": [text, *images]}]


def sent(provider: ScriptedProvider) -> list[str]:
    """The URLs of the pictures in the request."""
    parts = [part for each in provider.requests[-1].json()["messages"] for part in each["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def inline(data: bytes = PNG, mime_type: str = "image/png") -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


async def answered(client: AutoLLMClient, *urls: str) -> None:
    assert shown(await events_of(client.streaming_response(asking(*urls))))[-1] == "stop stop"


async def refusal(client: AutoLLMClient, *urls: str) -> str:
    with pytest.raises(InvalidMessageError) as caught:
        await events_of(client.streaming_response(asking(*urls)))
    assert (caught.value.item_type, caught.value.message_index) == ("image_url", 0)
    return str(caught.value)


async def test_a_picture_is_fetched_once_and_sent_inline_without_our_headers() -> None:
    with ScriptedProvider(picture()) as host, ScriptedProvider(complete()) as provider:
        url = f"{host.base_url}/a.png?signature=secret"
        client = client_of(
            provider, allow_private_image_urls=True, default_headers={"X-Mine": "also a secret"}
        )
        await answered(client, url, url)
        assert sent(provider) == [inline(), inline()]
        (request,) = host.requests
        assert request.target == "/v1/a.png?signature=secret"
        assert {name.lower() for name, _ in request.headers} == {
            "host",
            "user-agent",
            "accept-encoding",
            "accept",
        }


async def test_the_history_keeps_the_url_and_each_call_fetches_anew() -> None:
    with ScriptedProvider(picture()) as host, ScriptedProvider(complete()) as provider:
        client = client_of(provider, allow_private_image_urls=True)
        url = f"{host.base_url}/a.png"
        for question in (asking(url)[0], asking()[0]):
            await events_of(client.streaming_response_stateful(question))
        assert client.get_history()[0]["content_items"][1] == {
            "type": "image_url.done",
            "image_url": url,
        }
        assert sent(provider) == [inline()]
        assert len(host.requests) == 2


@pytest.mark.parametrize(
    ("content_type", "path", "mime_type"),
    [
        ("image/webp; charset=binary", "a.png", "image/webp"),
        (None, "a.gif", "image/gif"),
        ("application/octet-stream", "a.png", "image/png"),
        (None, "a", "image/jpeg"),
        (None, "a.txt", "image/jpeg"),
    ],
)
async def test_what_kind_of_picture_it_is(
    content_type: str | None, path: str, mime_type: str
) -> None:
    answer = picture(content_type=content_type)
    with ScriptedProvider(answer) as host, ScriptedProvider(complete()) as provider:
        await answered(
            client_of(provider, allow_private_image_urls=True), f"{host.base_url}/{path}"
        )
        assert sent(provider) == [inline(mime_type=mime_type)]


async def test_redirects_are_followed_up_to_the_limit() -> None:
    hops = [Answer(status=302, headers={"location": f"/hop{n}"}) for n in range(2)]
    with ScriptedProvider(*hops, picture()) as host, ScriptedProvider(complete()) as provider:
        await answered(client_of(provider, allow_private_image_urls=True), f"{host.base_url}/a.png")
        assert [each.target for each in host.requests] == ["/v1/a.png", "/hop0", "/hop1"]
    with ScriptedProvider(*hops, picture()) as host, ScriptedProvider(complete()) as provider:
        limits = Limits(image_redirects=1)
        client = client_of(provider, allow_private_image_urls=True, limits=limits)
        assert "more than 1 redirects" in await refusal(client, f"{host.base_url}/a.png")
        assert provider.requests == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer.error(404, "none"), "HTTP 404"),
        (Answer(status=302), "HTTP 302"),
        (Answer(status=302, headers={"location": "ftp://a/b"}), "needs an absolute http://"),
        (Answer(status=302, headers={"location": "http://u:p@127.0.0.1/"}), "may not hold a user"),
        (Answer(say("<html>"), content_type="text/html"), "it is text/html, no picture"),
        (picture(b""), "it is empty"),
        (picture(bytes(5000)), "longer than 4,000 bytes"),
        (Answer(say(PNG), framing="short", content_type="image/png"), "was cut"),
        (Answer(stall(), content_type="image/png"), "no answer in 0.2 s"),
        (Answer(drip(bytes(3000), 1, 0.01), content_type="image/png"), "no answer in 0.2 s"),
        (Answer(head_gate="never"), "no answer in 0.2 s"),
    ],
)
async def test_a_picture_that_cannot_be_had_is_named_without_its_query(
    answer: Answer, why: str
) -> None:
    with ScriptedProvider(answer) as host, ScriptedProvider(complete()) as provider:
        client = client_of(
            provider,
            allow_private_image_urls=True,
            limits=Limits(image_bytes=4000, image_seconds=0.2),
            max_retries=0,
        )
        message = await refusal(client, f"{host.base_url}/a.png?signature=secret")
        where = (
            f"messages[0].content_items[1].image_url: the picture at {host.base_url}/a.png cannot"
        )
        assert message.startswith(where)
        assert why in message
        assert "secret" not in message
        assert provider.requests == []
        assert client.get_history() == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.png",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/a.png",
        "http://[::ffff:10.0.0.1]/a.png",
        "https://user:secret@pictures.example/a.png",
        "http://",
        "http://pictures.example:0/a.png",
    ],
)
def test_a_url_that_may_not_be_fetched_is_refused_at_the_call(url: str) -> None:
    client = AutoLLMClient("m", "k", client_type="openai-chat")
    stateful: Any = client.streaming_response_stateful
    calls: list[Any] = [(client.streaming_response, asking(url)), (stateful, asking(url)[0])]
    for call, given in calls:
        with pytest.raises(InvalidMessageError) as caught:
            call(given)
        assert caught.value.item_type == "image_url"
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
    ],
)
async def test_a_name_that_leads_to_a_private_address_is_refused_before_connecting(
    name: str,
) -> None:
    with ScriptedProvider(picture()) as host, ScriptedProvider(complete()) as provider:
        port = host.base_url.split(":")[2].split("/")[0]
        message = await refusal(client_of(provider), f"http://{name}:{port}/a.png")
        assert "is an address of a private network" in message
        assert message.endswith("made with allow_private_image_urls=True fetches those too")
        assert host.connections == []


async def test_every_hop_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmsp.transport.connect.is_public", lambda address: True)
    with ScriptedProvider(picture()) as private, ScriptedProvider(complete()) as provider:
        hop = Answer(status=302, headers={"location": f"{private.base_url}/a.png"})
        with ScriptedProvider(hop) as host:
            port = host.base_url.split(":")[2].split("/")[0]
            message = await refusal(client_of(provider), f"http://localhost:{port}/a.png")
        assert "127.0.0.1 is an address of a private network" in message
        assert "allow_private_image_urls=True fetches those too" in message
        assert private.connections == []


async def test_a_redirect_from_https_to_http_is_refused() -> None:
    hop = Answer(status=302, headers={"location": "http://127.0.0.1/"})
    with ScriptedProvider(hop, tls=True) as host, ScriptedProvider(complete()) as provider:
        client = client_of(provider, allow_private_image_urls=True, ssl_context=host.ssl_context)
        message = await refusal(client, f"{host.base_url}/a.png")
        assert "redirects from https" in message


async def test_images_of_tool_results_are_fetched_too() -> None:
    with ScriptedProvider(picture()) as host, ScriptedProvider(complete()) as provider:
        result: Any = {
            "type": "tool_result.done",
            "text": "",
            "tool_call_id": "c",
            "images": [f"{host.base_url}/a.png"],
        }
        call: Any = {"type": "tool_call.done", "name": "f", "arguments": {}, "tool_call_id": "c"}
        messages: list[UniMessage] = [
            {"role": "assistant", "content_items": [call]},
            {"role": "user", "content_items": [result]},
        ]
        client = client_of(provider, allow_private_image_urls=True)
        await events_of(client.streaming_response(messages))
        assert inline() in str(provider.requests[0].json())


@pytest.mark.parametrize("way", ["abort", "abort from a thread", "close", "cancel"])
@pytest.mark.parametrize(
    "phase", ["TCP connect not accepted", "headers late", "inside the body", "second hop"]
)
async def test_a_stop_ends_the_fetch_at_once(phase: str, way: str) -> None:
    answers = {
        "headers late": [Answer(head_gate="never")],
        "inside the body": [Answer(say(PNG), stall(), content_type="image/png")],
        "second hop": [Answer(status=307, headers={"location": "/b"}), Answer(head_gate="never")],
    }
    never = phase == "TCP connect not accepted"
    signal = AbortSignal()
    with (
        ScriptedProvider(*answers.get(phase, []), never_accept=never) as host,
        ScriptedProvider(complete()) as provider,
    ):
        client = client_of(provider, allow_private_image_urls=True)
        question = asking(f"{host.base_url}/a.png")[0]
        stream = client.streaming_response_stateful(question, signal=signal)
        task = asyncio.ensure_future(anext(stream))
        if never:
            while not host.pending_connects():
                await asyncio.sleep(0.001)
        else:
            await host.until("stalled")
        await asyncio.sleep(0.01)
        started = time.monotonic()
        if way == "cancel":
            task.cancel()
        elif way == "close":
            await stream.aclose()
        elif way == "abort":
            signal.abort("why")
        else:
            thread = threading.Thread(target=signal.abort, args=("why",))
            thread.start()
            thread.join()
        if way != "cancel":
            client.clear_history()  # the claim is free
        ended = (await asyncio.gather(task, return_exceptions=True))[0]
        assert time.monotonic() - started < LIMIT
        for connection in host.connections:
            await connection.until_closed(LIMIT)
        expected = {"cancel": asyncio.CancelledError, "close": StopAsyncIteration}
        if way in expected:
            assert isinstance(ended, expected[way])
        else:
            assert isinstance(ended, AbortError | asyncio.CancelledError)
            assert stream.reason == "why"
        assert provider.connections == []
        assert client.get_history() == []


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///a.png",
        "http://:80/a.png",
        "http://pictures.example:0/a.png",
        "http://pictures.example:99999/a.png",
        "http://[::1/a.png",
        "https://pictures.example/a b.png",
        "https://pictures.example/a\nb.png",
        " https://pictures.example/a.png",
        "file:///etc/passwd",
        "//pictures.example/a.png",
        "javascript:alert(1)",
    ],
)
@pytest.mark.parametrize("client_type", [each for each in CLIENTS if each != "openai-embedding"])
def test_a_url_that_leads_nowhere_is_refused_at_the_call_by_every_client(
    client_type: str, url: str
) -> None:
    client = AutoLLMClient("m", "k", "http://127.0.0.1:9", client_type)
    with pytest.raises(InvalidMessageError) as caught:
        client.streaming_response(asking(url))
    assert caught.value.item_type == "image_url"
    assert "messages[0].content_items[1].image_url" in str(caught.value)


@pytest.mark.parametrize("step", [stall(), drip(bytes(100_000), 1, 0.01)])
async def test_a_redirect_whose_body_goes_on_holds_nothing_up(step: Any) -> None:
    hop = Answer(step, status=302, headers={"location": "/b.png"})
    with ScriptedProvider(hop, picture()) as host, ScriptedProvider(complete()) as provider:
        client = client_of(provider, allow_private_image_urls=True, limits=Limits(image_seconds=2))
        began = time.monotonic()
        await answered(client, f"{host.base_url}/a.png")
        assert time.monotonic() - began < 1
        assert sent(provider) == [inline()]


async def test_a_location_in_utf8_is_read_as_browsers_read_it() -> None:
    hop = Answer(status=302, headers={"location": " /bücher/é.png ".encode().decode("latin-1")})
    with ScriptedProvider(hop, picture()) as host, ScriptedProvider(complete()) as provider:
        client = client_of(provider, allow_private_image_urls=True)
        await answered(client, f"{host.base_url}/a.png")
        assert host.requests[1].target == "/b%C3%BCcher/%C3%A9.png"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("file:///etc/passwd", "needs an absolute http:// or https:// URL"),
        ("javascript:alert(1)", "needs an absolute http:// or https:// URL"),
        ("https://[::1", "Invalid IPv6 URL"),
        ("http://u:p@127.0.0.1/", "may not hold a user and password"),
    ],
)
async def test_a_redirect_to_what_is_no_picture_is_told(location: str, why: str) -> None:
    hop = Answer(status=302, headers={"location": location})
    with ScriptedProvider(hop) as host, ScriptedProvider(complete()) as provider:
        client = client_of(provider, allow_private_image_urls=True)
        assert why in await refusal(client, f"{host.base_url}/a.png")


async def test_the_clients_certificate_is_not_shown_to_who_has_pictures() -> None:
    """A host that asks for a certificate gets one from the provider's client, and none with a picture."""
    shown_to: dict[str, Any] = {}
    async with _asking_for_certificates(shown_to) as (url, context):
        with ScriptedProvider(complete()) as provider:
            client = AutoLLMClient(
                "m",
                "k",
                provider.base_url,
                "openai-chat",
                ssl_context=context,
                allow_private_image_urls=True,
            )
            await answered(client, f"{url}/a.png")
        assert shown_to == {"/a.png": None}
        with pytest.raises(MMSPError):
            await AutoLLMClient("m", "k", url, "openai-chat", ssl_context=context).list_models()
        assert shown_to["/models"] is not None


@contextlib.asynccontextmanager
async def _asking_for_certificates(
    shown_to: dict[str, Any],
) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """A TLS server that writes down the certificate that each request came with; its URL, and a client's
    context that has one."""
    authority = trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(theirs)
    theirs.verify_mode = ssl.CERT_OPTIONAL
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    authority.issue_cert("me@mmsp.example").configure_cert(ours)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        shown_to[head.split()[1]] = writer.get_extra_info("peercert") or None
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 24\r\n\r\n" + PNG
        )
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=theirs)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", ours


async def test_a_host_with_a_trailing_dot_has_its_certificate_checked_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = socket.getaddrinfo  # which here knows no name with a dot at its end

    def without_dot(host: Any, *rest: Any, **more: Any) -> Any:
        return looked_up(host.rstrip("."), *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", without_dot)
    with ScriptedProvider(picture(), tls=True, host="localhost") as host:
        port = host.base_url.split(":")[2].split("/")[0]
        with ScriptedProvider(complete()) as provider:
            client = client_of(
                provider, allow_private_image_urls=True, ssl_context=host.ssl_context
            )
            await answered(client, f"https://localhost.:{port}/a.png")
            assert sent(provider) == [inline()]
