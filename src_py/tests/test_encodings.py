"""Answers in an encoding that nobody asked for: undone within bounds, or refused by name."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from mmsp import (
    AbortError,
    IncompleteStreamError,
    Limits,
    StreamProtocolError,
    UpstreamError,
)
from mmsp.testing import Answer, ScriptedProvider, chat, drip, say, stall
from tests.asking import BODY, QUESTION, WHOLE, client_of
from tests.calling import ask, failure_of


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "identity": ("identity", bytes),
}


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_an_encoded_answer_is_decoded(encoding: str, size: int, tls: bool) -> None:
    name, encode = ENCODERS[encoding]
    answer = Answer(drip(encode(BODY), size, 0.0), headers={"content-encoding": name})
    with ScriptedProvider(answer, tls=tls) as provider:
        assert await ask(client_of(provider)) == WHOLE
        assert provider.requests[0].header("accept-encoding") == "identity"


NO = b'{"error": {"message": "no"}}'
EMPTY = gzip.compress(b"")
GZIP = {"content-encoding": "gzip"}


@pytest.mark.parametrize("blanks", [1, 2, 500])
@pytest.mark.every_loop
async def test_empty_members_of_gzip_hold_nothing_up(blanks: int, tls: bool) -> None:
    body = EMPTY * blanks + gzip.compress(chat.text("Hel")) + EMPTY * blanks
    rest = gzip.compress(chat.text("lo") + chat.finish("stop") + chat.usage() + chat.done())
    with ScriptedProvider(
        Answer(say(body), stall(), headers=GZIP),
        Answer(say(body), say(EMPTY * blanks + rest), headers=GZIP),
        Answer(say(EMPTY * blanks + gzip.compress(NO)), status=404, headers=GZIP),
        tls=tls,
    ) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        async with asyncio.timeout(5):
            first = await anext(stream)
        assert first["content_items"] == [{"type": "text.delta", "text": "Hel"}]
        await stream.aclose()
        async with asyncio.timeout(5):
            message = await client_of(provider).streaming_response([QUESTION]).message()
            error, _ = await failure_of(client_of(provider))
        assert message["content_items"] == [{"type": "text.done", "text": "Hello"}]
        assert str(error) == "HTTP 404: no"


async def test_what_arrived_behind_empty_members_is_delivered_after_an_abort() -> None:
    body = gzip.compress(chat.text("Hel")) + EMPTY * 500 + gzip.compress(chat.text("lo"))
    with ScriptedProvider(Answer(say(body), stall(), headers=GZIP)) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        seen = [(await anext(stream))["content_items"][0]]
        stream.abort("enough")
        with pytest.raises(AbortError, match="enough"):
            async for event in stream:
                seen += event["content_items"]
        assert "".join(item["text"] for item in seen if item["type"] == "text.delta") == "Hello"


async def test_an_encoded_error_is_decoded() -> None:
    body = gzip.compress(b'{"error": {"message": "no such model"}}')
    answer = Answer(say(body), status=404, headers={"content-encoding": "gzip"})
    with ScriptedProvider(answer) as provider:
        error, _ = await failure_of(client_of(provider))
        assert str(error) == "HTTP 404: no such model"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_an_encoding_that_cannot_be_undone_is_named(encoding: str) -> None:
    headers = {"content-encoding": encoding}
    with ScriptedProvider(
        Answer(say(b"\x1b\x03data: not this\n\n"), headers=headers),
        Answer(say(b"\x1b\x03"), status=400, headers=headers),
    ) as provider:
        error, delivered = await failure_of(client_of(provider))
        assert isinstance(error, StreamProtocolError)
        assert encoding in str(error)
        assert delivered == []
        error, _ = await failure_of(client_of(provider))
        assert isinstance(error, UpstreamError)
        assert error.status == 400


async def test_a_broken_encoding_is_an_error_of_the_answer() -> None:
    body = gzip.compress(BODY)
    broken = body[:20] + bytes(byte ^ 0x55 for byte in body[20:40]) + body[40:]
    headers = {"content-encoding": "gzip"}
    with ScriptedProvider(Answer(say(broken), headers=headers)) as provider:
        error, _ = await failure_of(client_of(provider))
        assert isinstance(error, StreamProtocolError)


async def test_an_encoded_answer_without_its_end_is_incomplete(tls: bool) -> None:
    compressor = zlib.compressobj(wbits=31)
    body = compressor.compress(chat.text("Hel")) + compressor.flush(zlib.Z_SYNC_FLUSH)
    headers = {"content-encoding": "gzip"}
    with ScriptedProvider(Answer(say(body), headers=headers), tls=tls) as provider:
        error, delivered = await failure_of(client_of(provider))
        assert isinstance(error, IncompleteStreamError)
        assert delivered == ["text.delta Hel"]


def bomb(start: bytes, filling: bytes, megabytes: int) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    piece = filling * (1_000_000 // len(filling))
    parts = [compressor.compress(start)]
    parts += [compressor.compress(piece) for _ in range(megabytes)]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.parametrize(
    ("start", "filling", "status", "expected"),
    [
        (b"data: ", b"x", 200, "Limits.event_bytes"),
        (b"{", b" ", 200, "Limits.answer_bytes"),
        (b"{", b" ", 400, "HTTP 400"),
    ],
    ids=["an event", "a whole answer", "an error"],
)
async def test_an_answer_that_unfolds_without_end_does_not_fill_the_memory(
    start: bytes, filling: bytes, status: int, expected: str
) -> None:
    body = bomb(start, filling, 100)
    limits = Limits(event_bytes=1_000_000, answer_bytes=1_000_000)
    answer = Answer(say(body), status=status, headers={"content-encoding": "gzip"})
    with ScriptedProvider(answer) as provider:
        tracemalloc.start()
        error, _ = await failure_of(client_of(provider, limits=limits, max_retries=0))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert expected in str(error)
    assert peak < 6_000_000


@pytest.mark.every_loop
async def test_an_answer_that_unfolds_without_end_leaves_the_loop_to_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    answer = Answer(
        say(bomb(b"", b": comment\n\n", 8) + gzip.compress(b"")),
        headers={"content-encoding": "gzip"},
        framing="length",
    )
    with ScriptedProvider(answer) as provider:
        task = asyncio.create_task(others())
        error, _ = await failure_of(client_of(provider))
        task.cancel()
    assert isinstance(error, IncompleteStreamError)
    assert turns > 20  # 8 MB in pieces of 256 KB
