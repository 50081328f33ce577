"""HTTP as it is found in the wild: what counts as an answer, what is sent along, what is refused."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from mmsp import (
    EmptyResponseError,
    IncompleteStreamError,
    Limits,
    StreamProtocolError,
    UpstreamConnectionError,
)
from mmsp.testing import Answer, ScriptedProvider, Step, chat, cut, pause, reset, say
from tests.asking import BODY, QUESTION, WHOLE, client_of, events_of
from tests.calling import ask, client_of_raw, failure_of
from tests.raw_server import RawServer, head, whole

TYPE = "content-type: text/event-stream"


# answers that count


def chunked(body: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    size = b"%x" % len(body)
    return size + extension + b"\r\n" + body + b"\r\n0\r\n" + trailers + b"\r\n"


FRAMED = {
    "length": whole(BODY),
    "HTTP/1.0": head(TYPE, status="HTTP/1.0 200 OK") + BODY,
    "until EOF": head(TYPE, "connection: close") + BODY,
    "chunked": head(TYPE, "transfer-encoding: chunked") + chunked(BODY),
    "chunk extension": head(TYPE, "Transfer-Encoding: Chunked") + chunked(BODY, b";name=value"),
    "trailers": head(TYPE, "transfer-encoding: chunked", "trailer: x-sum")
    + chunked(BODY, trailers=b"x-sum: 1\r\n"),
    "identity": head(TYPE, "transfer-encoding: identity") + BODY,
    "1xx": head(status="HTTP/1.1 100 Continue") * 3 + whole(BODY),
    "hints": head("link: </x>", status="HTTP/1.1 103 Early Hints") + whole(BODY),
    "upgrade offered": whole(BODY, "upgrade: h2c", "connection: upgrade"),
    "no reason": head(f"content-length: {len(BODY)}", status="HTTP/1.1 200") + BODY,
}


@pytest.mark.every_loop
@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("cuts", ["at once", "in two"])
async def test_an_answer_is_read_however_it_is_framed(framing: str, cuts: str, tls: bool) -> None:
    answer = FRAMED[framing]
    half = len(answer) // 2
    pieces = (answer,) if cuts == "at once" else (answer[:half], answer[half:])
    async with RawServer(pieces, secure=tls) as server:
        assert await ask(client_of_raw(server)) == WHOLE


@pytest.mark.parametrize("framing", FRAMED)
async def test_an_answer_is_read_byte_by_byte(framing: str) -> None:
    pieces = tuple(bytes([byte]) for byte in FRAMED[framing])
    async with RawServer(pieces, between=0.0) as server:
        assert await ask(client_of_raw(server)) == WHOLE


async def test_trailers_are_no_headers() -> None:
    answer = head(TYPE, "transfer-encoding: chunked") + chunked(
        BODY, trailers=b"x-request-id: forged\r\n"
    )
    async with RawServer(answer) as server:
        stream = client_of_raw(server).streaming_response([QUESTION])
        await events_of(stream)
        assert stream.request_id is None


# answers that do not


@pytest.mark.every_loop
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\x01\x02\x03 nothing of the kind",
        b"HTTP/2 200 OK\r\n\r\n",
        b"<html>no head</html>\r\n\r\n",
        head("content-length: 5", "content-length: 6") + b"hello!",
        head("content-length: -1") + b"hello",
        head("content-length: 5", "transfer-encoding: chunked") + b"hello",
        head("bad name: x") + b"hello",
        head("x-folded: a\r\n b", "content-length: 5") + b"hello",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ],
    ids=[
        "SSH", "binary", "HTTP/2", "HTML", "two lengths", "negative length", "length and chunked",
        "header name", "folded line", "101",
    ],
)  # fmt: skip
async def test_what_is_not_http_is_refused_and_not_tried_again(answer: bytes, tls: bool) -> None:
    async with RawServer(answer, secure=tls, stays_open=True) as server:
        error, delivered = await failure_of(client_of_raw(server, max_retries=2))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable, delivered) == ("head", False, [])
        assert len(server.requests) == 1
        await asyncio.wait_for(server.ended.wait(), 1)


@pytest.mark.parametrize("body", [b"", b"garbage"], ids=["nothing", "garbage"])
async def test_an_answer_without_content_is_an_error(body: bytes, tls: bool) -> None:
    async with RawServer(head(status="HTTP/1.1 204 No Content") + body, secure=tls) as server:
        error, _ = await failure_of(client_of_raw(server))
        assert isinstance(error, IncompleteStreamError | EmptyResponseError)


@pytest.mark.parametrize(
    "fields",
    [
        ["x: " + "y" * 70_000],
        [f"x-{number}: {'y' * 90}" for number in range(700)],
        ["y" * 70_000 + ": x"],
    ],
    ids=["one header", "many headers", "a long name"],
)
@pytest.mark.parametrize("pieces", [1, 5])
async def test_a_head_over_the_limit_is_refused(fields: list[str], pieces: int) -> None:
    answer = head(TYPE, *fields) + BODY
    size = len(answer) // pieces + 1
    parts = tuple(answer[start : start + size] for start in range(0, len(answer), size))
    async with RawServer(parts) as server:
        error, _ = await failure_of(client_of_raw(server, max_retries=2))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable) == ("head", False)
        assert "Limits.head_bytes" in str(error)
        assert server.connections == 1


@pytest.mark.parametrize(
    "flood",
    [
        (head(TYPE) [:-2] + b"x: ", b"y" * 16_384),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 500),
        (head(TYPE, "transfer-encoding: chunked") + chunked(chat.text("a"))[:-2] + b"x: ", b"y" * 16_384),
        (head(TYPE, "transfer-encoding: chunked") + b"5;", b"y" * 16_384),
    ],
    ids=["a header", "1xx answers", "a trailer", "a chunk extension"],
)  # fmt: skip
async def test_what_never_ends_is_not_kept_in_memory(flood: tuple[bytes, bytes]) -> None:
    first, more = flood
    async with RawServer((first, *[more] * 400), between=0.0) as server:
        tracemalloc.start()
        error, _ = await failure_of(client_of_raw(server))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "Limits.head_bytes" in str(error)
        assert peak < 3_000_000


async def test_the_limit_of_a_head_can_be_raised() -> None:
    answer = head(TYPE, "x: " + "y" * 70_000, f"content-length: {len(BODY)}") + BODY
    async with RawServer(answer) as server:
        assert await ask(client_of_raw(server, limits=Limits(head_bytes=100_000))) == WHOLE


# answers that are cut


@pytest.mark.every_loop
@pytest.mark.parametrize(
    ("steps", "framing"),
    [
        ([cut()], "chunked"),
        ([reset()], "chunked"),
        ([cut()], "length"),
        ([], "short"),
        ([], "close"),
        ([pause(0.02), reset()], "close"),
    ],
    ids=["chunked, FIN", "chunked, RST", "length, FIN", "short", "until EOF", "until EOF, RST"],
)
async def test_what_came_before_a_cut_is_delivered(
    steps: list[Step], framing: Any, tls: bool
) -> None:
    events = [say(chat.text(f"{number} ")) for number in range(5)]
    with ScriptedProvider(
        Answer(*events, pause(0.02), *steps, framing=framing), tls=tls
    ) as provider:
        if framing == "length":
            provider.answers = [Answer(*events, framing="short")]
        error, delivered = await failure_of(client_of(provider))
    assert isinstance(error, IncompleteStreamError)
    assert delivered == [f"text.delta {number} " for number in range(5)]
    assert error.missing == ("finish_reason", "usage_metadata")


@pytest.mark.every_loop
async def test_a_chunk_that_is_cut_in_its_middle_is_a_cut(tls: bool) -> None:
    answer = head(TYPE, "transfer-encoding: chunked") + b"ffff\r\n" + chat.text("Hel") + b"data: {"
    async with RawServer(answer, secure=tls) as server:
        error, delivered = await failure_of(client_of_raw(server))
        assert isinstance(error, IncompleteStreamError)
        assert delivered == ["text.delta Hel"]


async def test_a_broken_chunk_ends_the_answer_after_what_came_before(tls: bool) -> None:
    hello = chat.text("Hel")
    answer = head(TYPE, "transfer-encoding: chunked") + b"%x\r\n%b\r\nzz\r\n" % (len(hello), hello)
    async with RawServer((answer,), secure=tls, stays_open=True) as server:
        error, delivered = await failure_of(client_of_raw(server))
        assert isinstance(error, StreamProtocolError)
        assert delivered == ["text.delta Hel"]
        await asyncio.wait_for(server.ended.wait(), 1)


@pytest.mark.every_loop
@pytest.mark.parametrize("framing", ["close", "length", "chunked"])
async def test_an_answer_that_ends_while_its_caller_is_slow_is_read_whole(
    framing: Any, tls: bool
) -> None:
    piece = chat.text("x" * 1000)
    steps = [*[say(piece)] * 1000, say(chat.ending())]
    answer = Answer(*steps, framing=framing, keep_alive=False)
    with ScriptedProvider(answer, tls=tls) as provider:
        length = 0
        async with client_of(provider).streaming_response([QUESTION]) as stream:
            async for text in stream.text():
                length += len(text)
                if length % 200_000 == 0:
                    await asyncio.sleep(0.01)
        assert length == 1_000_000
