"""Trying again: what is tried again, how often and after how long, and what ends it."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import time

import pytest

from mmsp import (
    AbortError,
    AbortSignal,
    AutoLLMClient,
    Limits,
    MMSPError,
    UpstreamConnectionError,
    UpstreamError,
)
from mmsp.http_call import HttpCall
from mmsp.stream import Stream
from mmsp.testing import Answer, ScriptedProvider, chat, cut, pause, reset, say, stall
from tests.asking import QUESTION, client_of, complete
from tests.calling import ask, client_of_raw, failure_of
from tests.raw_server import RawServer, head


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before retries, none of which is waited for."""
    waits: list[float] = []

    async def note(call: HttpCall, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(HttpCall, "_sleep", note)
    return waits


def refusal(status: int, **headers: str) -> Answer:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer.error(status, "no", headers=fields)


# what is tried again


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_passing_refusal_is_tried_again(status: int, waits: list[float], tls: bool) -> None:
    with ScriptedProvider(refusal(status), refusal(status), complete(), tls=tls) as provider:
        assert (await ask(client_of(provider)))[-1] == "stop stop"
        assert len(provider.requests) == 3
        bodies = {request.body for request in provider.requests}
        assert len(bodies) == 1  # the same request each time
        assert len(provider.connections) == 1


@pytest.mark.parametrize("status", [300, 400, 401, 402, 403, 404, 405, 410, 413, 415, 422, 451])
async def test_a_lasting_refusal_is_not_tried_again(status: int, waits: list[float]) -> None:
    with ScriptedProvider(refusal(status), complete()) as provider:
        error, _ = await failure_of(client_of(provider))
        assert isinstance(error, UpstreamError)
        assert (error.status, error.retryable) == (status, False)
        assert (len(provider.requests), waits) == (1, [])


@pytest.mark.parametrize("status", [501, 505, 511])
async def test_a_refusal_to_ever_do_it_is_not_tried_again(status: int, waits: list[float]) -> None:
    with ScriptedProvider(refusal(status), complete()) as provider:
        await failure_of(client_of(provider))
        assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("status", "asked", "requests"), [(400, "true", 3), (429, "false", 1), (503, "maybe", 3)]
)
async def test_the_provider_may_say_whether_to_try_again(
    status: int, asked: str, requests: int, waits: list[float]
) -> None:
    with ScriptedProvider(refusal(status, x_should_retry=asked)) as provider:
        await failure_of(client_of(provider))
        assert len(provider.requests) == requests


@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_there_are_so_many_retries_and_no_more(retries: int, waits: list[float]) -> None:
    with ScriptedProvider(refusal(503)) as provider:
        error, _ = await failure_of(client_of(provider, max_retries=retries))
        assert isinstance(error, UpstreamError)
        assert error.retryable
        assert (len(provider.requests), len(waits)) == (retries + 1, retries)


async def test_two_retries_are_the_default(waits: list[float]) -> None:
    with ScriptedProvider(refusal(503)) as provider:
        await failure_of(client_of(provider))
        assert len(provider.requests) == 3


@pytest.mark.every_loop
async def test_a_connection_that_fails_before_an_answer_is_tried_again(
    waits: list[float], tls: bool
) -> None:
    async with RawServer(b"", secure=tls) as server:
        error, _ = await failure_of(client_of_raw(server, max_retries=2))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable) == ("head", True)
        assert (len(server.requests), len(waits)) == (3, 2)


async def test_a_refused_connection_is_tried_again() -> None:
    with ScriptedProvider(complete()) as provider:
        port = provider.port
    client = AutoLLMClient("m", "a-key", f"http://127.0.0.1:{port}/v1", "openai-chat")
    asking = asyncio.create_task(ask(client))
    await asyncio.sleep(0.1)  # the first attempt has failed
    server = await asyncio.start_server(_say_hello, "127.0.0.1", port)
    async with server:
        assert (await asking)[-1] == "stop stop"


async def _say_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(head("content-type: text/event-stream") + b"".join(chat.answer("hello")))
    writer.close()
    await writer.wait_closed()


# nothing is tried again once an answer has begun


@pytest.mark.every_loop
@pytest.mark.parametrize(
    "answer",
    [
        Answer(say(chat.role()), cut()),
        Answer(say(chat.text("Hel")), cut()),
        Answer(say(chat.text("Hel")), pause(0.01), reset()),
        Answer(say(b": ping\n\n"), cut()),
        Answer(pause(0.01), cut()),
        Answer(say(chat.error("overloaded", 529))),
        Answer(say("")),
    ],
    ids=["a role", "text", "text, reset", "a ping", "a head", "an error", "nothing at all"],
)
async def test_an_answer_that_has_begun_is_not_asked_for_again(
    answer: Answer, waits: list[float], tls: bool
) -> None:
    with ScriptedProvider(answer, tls=tls) as provider:
        error, _ = await failure_of(client_of(provider, max_retries=5))
        assert not isinstance(error, UpstreamConnectionError)
        assert (len(provider.requests), waits) == (1, [])


@pytest.mark.every_loop
@pytest.mark.parametrize(
    "first", [b"H", b"HTTP/1.1 200 OK\r\n", head(status="HTTP/1.1 100 Continue")]
)
async def test_half_a_head_is_not_asked_for_again(first: bytes, waits: list[float]) -> None:
    async with RawServer(first) as server:
        error, _ = await failure_of(client_of_raw(server, max_retries=5))
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase == "head"
        assert (len(server.requests), waits) == (1, [])


# how long it waits


async def test_the_waits_double_with_a_jitter_of_a_quarter(waits: list[float]) -> None:
    with ScriptedProvider(refusal(503)) as provider:
        client = client_of(provider, max_retries=7)
        for _ in range(10):
            await failure_of(client)
    full = [0.5, 1, 2, 4, 8, 8, 8]
    assert len(waits) == 70
    shares = [wait / full[number % 7] for number, wait in enumerate(waits)]
    assert all(0.75 <= share <= 1 for share in shares)
    assert min(shares) < 0.82
    assert max(shares) > 0.93


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after": "60"}, 60),
    ],
)
async def test_the_wait_the_provider_asks_for_is_kept(
    headers: dict[str, str], seconds: float, waits: list[float]
) -> None:
    with ScriptedProvider(refusal(429, **headers), complete()) as provider:
        await ask(client_of(provider))
        assert waits == [seconds]


async def test_the_wait_may_be_asked_for_as_a_date(waits: list[float]) -> None:
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    with ScriptedProvider(refusal(503, retry_after=date), complete()) as provider:
        await ask(client_of(provider))
        assert 18 < waits[0] <= 20


@pytest.mark.parametrize(
    "asked", ["0", "-1", "soon", "", "nan", "Wed, 21 Oct 2015 07:28:00 GMT", "1e999"]
)
async def test_a_wait_that_says_nothing_is_ours(asked: str, waits: list[float]) -> None:
    with ScriptedProvider(refusal(429, retry_after=asked), complete()) as provider:
        await ask(client_of(provider))
        assert 0.375 <= waits[0] <= 0.5


@pytest.mark.parametrize("asked", ["3600", "61"])
async def test_a_wait_that_is_too_long_is_the_callers_business(
    asked: str, waits: list[float], tls: bool
) -> None:
    with ScriptedProvider(refusal(429, retry_after=asked), complete(), tls=tls) as provider:
        before = time.monotonic()
        error, _ = await failure_of(client_of(provider))
        assert time.monotonic() - before < 0.5
        assert isinstance(error, UpstreamError)
        assert (error.retry_after, error.retryable) == (float(asked), True)
        assert (len(provider.requests), waits) == (1, [])


async def test_the_longest_wait_can_be_set(waits: list[float]) -> None:
    with ScriptedProvider(refusal(429, retry_after="100"), complete()) as provider:
        await ask(client_of(provider, limits=Limits(retry_wait=120)))
        assert waits == [100]


@pytest.mark.no_debug
async def test_a_wait_takes_as_long_as_it_says() -> None:
    with ScriptedProvider(refusal(429, retry_after_ms="150"), complete()) as provider:
        before = time.monotonic()
        await ask(client_of(provider))
        assert 0.15 <= time.monotonic() - before < 0.5


# what ends it


@pytest.mark.every_loop
@pytest.mark.parametrize("way", ["stream", "signal", "cancel"])
async def test_a_stop_during_the_wait_sends_nothing_more(way: str, tls: bool) -> None:
    with ScriptedProvider(refusal(429, retry_after="30"), complete(), tls=tls) as provider:
        signal = AbortSignal()
        stream = client_of(provider).streaming_response([QUESTION], signal=signal)
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("idle")
        await asyncio.sleep(0.05)
        before = time.monotonic()
        if way == "stream":
            stream.abort("enough")
        elif way == "signal":
            signal.abort("enough")
        else:
            reading.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await reading
        assert time.monotonic() - before < 0.1
        assert isinstance(caught.value, AbortError) == (way != "cancel")
        await asyncio.sleep(0.05)
        assert len(provider.requests) == 1


@pytest.mark.every_loop
@pytest.mark.parametrize(
    "first",
    [Answer(stall()), Answer(head_gate="never"), Answer(stall(), status=503)],
    ids=["head came", "no head", "error body late"],
)
async def test_an_abort_during_an_attempt_is_not_followed_by_another(
    first: Answer, tls: bool
) -> None:
    with ScriptedProvider(first, complete(), tls=tls) as provider:
        stream = client_of(provider, max_retries=4).streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        await provider.until("stalled")
        reason = object()
        stream.abort(reason)
        with pytest.raises(AbortError) as caught:
            await reading
        assert caught.value.reason is reason
        await asyncio.sleep(0.02)
        assert len(provider.requests) == 1


class ForeignError(Exception):
    pass


class ForeignBaseError(BaseException):
    pass


async def break_in(stream: Stream, provider: ScriptedProvider, error: BaseException) -> None:
    """Raise `error` where the reader waits, as a signal handler or a debugger can."""
    await provider.until("stalled")
    assert stream._waiter is not None
    stream._waiter.set_exception(error)


@pytest.mark.parametrize(
    "error", [ForeignError("mine"), ForeignBaseError("mine"), KeyboardInterrupt("mine")]
)
async def test_a_foreign_exception_during_an_attempt_is_not_followed_by_another(
    error: BaseException,
) -> None:
    with ScriptedProvider(Answer(head_gate="never"), complete()) as provider:
        stream = client_of(provider, max_retries=4).streaming_response([QUESTION])
        breaking = asyncio.create_task(break_in(stream, provider, error))
        with pytest.raises(type(error)) as caught:
            await anext(stream)
        assert caught.value is error
        await breaking
        error.__traceback__ = None  # it holds the frame that holds the stream
        del stream, breaking, caught
        gc.collect()
        await provider.connections[0].until_closed(0.5)
        await asyncio.sleep(0.05)
        assert len(provider.requests) == 1


async def test_a_stop_is_no_failure_of_the_provider(waits: list[float]) -> None:
    with ScriptedProvider(refusal(503), Answer(say(chat.text("Hel")), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        stream.abort()
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        assert not isinstance(caught.value, MMSPError)
        assert caught.value.__context__ is None
        assert (len(provider.requests), len(waits)) == (2, 1)
