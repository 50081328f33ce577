"""Who is at fault is told as it was: a stop is never a failure of the provider, and a failure that the
provider has owned up to never turns into a stop.
"""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from mmsp import (
    AbortError,
    AbortSignal,
    IncompleteStreamError,
    ProviderStreamError,
    UpstreamError,
)
from mmsp.testing import Answer, ScriptedProvider, cut, pause, say, stall
from tests.asking import QUESTION, client_of, shown
from tests.interruption_table import EXHAUSTIVE, WIRES, Way
from tests.stopping import STOPS, stop

pytestmark = [pytest.mark.no_debug, pytest.mark.parametrize("client_type", EXHAUSTIVE)]


@pytest.mark.parametrize("way", STOPS)
@pytest.mark.parametrize("when", ["no head", "a head", "mid-item", "a refusal's body", "a wait"])
async def test_a_stop_is_never_followed_by_another_request(
    client_type: str, when: str, way: Way, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wire = WIRES[client_type]
    answers = {
        "no head": Answer(head_gate="never"),
        "a head": Answer(stall()),
        "mid-item": Answer(say(wire.text("a")), stall()),
        "a refusal's body": Answer(stall(), status=503),
        "a wait": Answer.error(429, "slow down", headers={"retry-after": "30"}),
    }
    whole = Answer(*map(say, wire.answer("All is well")))
    with ScriptedProvider(answers[when], whole, tls=tls) as provider:
        client = client_of(provider, client_type, max_retries=5)
        stream = client.streaming_response_stateful(QUESTION)
        if when == "mid-item":
            await anext(stream)
        started = time.monotonic()
        await stop(stream, way, until=provider.until("idle" if when == "a wait" else "stalled"))
        assert time.monotonic() - started < 1
        assert stream.outcome in ("aborted", "closed", "cancelled")
        await asyncio.sleep(0.05)
        assert len(provider.requests) == 1
        client.clear_history()
        await client.streaming_response_stateful(QUESTION).message()  # held against nobody
        assert len(provider.requests) == 2
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_an_abort_error_carries_no_failure_behind_it(client_type: str) -> None:
    """Also after an attempt that failed, and with a failure waiting in the buffer."""
    wire = WIRES[client_type]
    busy = Answer.error(503, "no", headers={"retry-after-ms": "1"})
    body = [wire.text("a"), wire.error("Too many")]
    with ScriptedProvider(busy, Answer(say(body), stall())) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        await anext(stream)
        await provider.until("stalled")
        stream.abort("why")
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert stream.outcome == "aborted"


@pytest.mark.parametrize("kind", ["a refusal", "an error event", "a cut"])
async def test_a_failure_that_was_handed_over_is_not_hidden_by_an_abort(
    client_type: str, kind: str, tls: bool
) -> None:
    wire = WIRES[client_type]
    answer, error = {
        "a refusal": (Answer.error(400, "bad"), UpstreamError),
        "an error event": (Answer(say(wire.error("Too many")), stall()), ProviderStreamError),
        "a cut": (Answer(say(wire.text("a")), pause(0.02), cut()), IncompleteStreamError),
    }[kind]
    signal = AbortSignal()
    with ScriptedProvider(answer, tls=tls) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION], signal=signal)
        with pytest.raises(error):
            await stream.message()
        signal.abort("late")
        assert (stream.aborted, stream.reason, stream.outcome) == (False, None, "failed")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert not signal._listeners


async def test_an_abort_before_a_waiting_failure_is_handed_over_is_an_abort(
    client_type: str,
) -> None:
    """What only sits in a buffer decides nothing: the caller stopped first."""
    wire = WIRES[client_type]
    body = [wire.text("a"), wire.text("b"), wire.error("Too many")]
    with ScriptedProvider(Answer(say(body), stall())) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        events = [await anext(stream)]
        await provider.until("stalled")
        stream.abort("why")
        with pytest.raises(AbortError):
            while True:
                events.append(await anext(stream))
        assert shown(events) == ["text.delta a", "text.delta b"]


async def test_a_wait_of_an_hour_is_told_and_not_waited_for(client_type: str, tls: bool) -> None:
    refusal = Answer.error(429, "tomorrow", headers={"retry-after": "3600"})
    with ScriptedProvider(refusal, tls=tls) as provider:
        before = time.monotonic()
        with pytest.raises(UpstreamError) as caught:
            await client_of(provider, client_type).streaming_response([QUESTION]).message()
        assert time.monotonic() - before < 1
        assert (caught.value.retry_after, caught.value.retryable) == (3600, True)
        assert len(provider.requests) == 1
