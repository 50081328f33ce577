"""One policy of retries for everything that is asked of a provider: answers, lists of models, pictures.

`test_http_call.py` has the policy in its parts; here is the table of what each answer to a first attempt
leads to, counted in requests at the provider, and that every route keeps to it.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mmsp import AbortSignal, AutoLLMClient, Limits, UpstreamError, UpstreamTimeoutError
from mmsp.call import Call
from mmsp.connector import Connector
from mmsp.errors import UpstreamConnectionError
from mmsp.http_call import HttpCall
from mmsp.settings import Timeouts
from mmsp.testing import Answer, ScriptedProvider, say
from tests.asking import QUESTION, client_of
from tests.calling import client_of_raw
from tests.interruption_table import EXHAUSTIVE, WIRES
from tests.raw_server import RawServer, head, whole

DAY = 86_400


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before retries, none of which is waited for."""
    waits: list[float] = []

    async def note(call: Call, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(HttpCall, "_sleep", note)
    return waits


@dataclass(frozen=True)
class In:
    """A date so many seconds from the request, as a header has it."""

    seconds: float

    def __str__(self) -> str:
        return email.utils.formatdate(time.time() + self.seconds, usegmt=True)


OURS = (0.375, 0.5)  # s, before the second attempt

# status, headers: how many seconds until the second attempt at least and at most, None if there is none
TABLE: list[tuple[int, dict[str, Any], tuple[float, float] | None]] = [
    *((status, {}, OURS) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
    *(
        (status, {}, None)
        for status in (400, 401, 402, 403, 404, 405, 410, 413, 422, 451, 501, 505)
    ),
    *((status, {"x-should-retry": "true"}, OURS) for status in (400, 401, 404, 422, 501)),
    *((status, {"x-should-retry": "false"}, None) for status in (408, 429, 500, 503, 529)),
    (503, {"X-Should-Retry": "TRUE"}, OURS),
    (429, {"x-should-retry": ""}, OURS),
    (429, {"x-should-retry": "1"}, OURS),
    (400, {"x-should-retry": "1"}, None),
    (429, {"retry-after": "2"}, (2, 2)),
    (503, {"retry-after": "2.5"}, (2.5, 2.5)),
    (503, {"Retry-After": " 2 "}, (2, 2)),
    (429, {"retry-after": "60"}, (60, 60)),
    (429, {"retry-after": "60.5"}, None),
    (429, {"retry-after": "3600"}, None),
    (429, {"retry-after": "1e9"}, None),
    (429, {"retry-after-ms": "1500"}, (1.5, 1.5)),
    (429, {"retry-after-ms": "60001"}, None),
    (429, {"retry-after-ms": "100", "retry-after": "3600"}, (0.1, 0.1)),
    (429, {"retry-after-ms": "3600000", "retry-after": "1"}, None),
    (429, {"retry-after-ms": "soon", "retry-after": "3"}, (3, 3)),
    (429, {"retry-after": In(20)}, (17, 20)),
    (429, {"retry-after": In(DAY)}, None),
    (429, {"retry-after": In(-DAY)}, OURS),
    (429, {"retry-after": "0"}, OURS),
    (429, {"retry-after-ms": "0"}, OURS),
    (429, {"retry-after": "-5"}, OURS),
    (429, {"retry-after": "soon"}, OURS),
    (429, {"retry-after": ""}, OURS),
    (429, {"retry-after": "nan"}, OURS),
    (429, {"retry-after": "inf"}, OURS),
    (429, {"retry-after": "Tue, 99 Foo 2030 99:99:99 GMT"}, OURS),
    (400, {"retry-after": "1"}, None),
    (400, {"retry-after": "1", "x-should-retry": "true"}, (1, 1)),
    (429, {"retry-after": "1", "x-should-retry": "false"}, None),
    (429, {"retry-after": "3600", "x-should-retry": "true"}, None),
]


@pytest.mark.parametrize("client_type", EXHAUSTIVE)
@pytest.mark.parametrize(("status", "headers", "between"), TABLE)
async def test_what_a_refusal_leads_to(
    client_type: str,
    status: int,
    headers: dict[str, Any],
    between: tuple[float, float] | None,
    waits: list[float],
) -> None:
    told = {name: str(value) for name, value in headers.items()}
    refusal = Answer.error(status, "no", headers=told)
    answer = Answer(*map(say, WIRES[client_type].answer("All is well")))
    with ScriptedProvider(refusal, answer) as provider:
        stream = client_of(provider, client_type).streaming_response([QUESTION])
        if between is None:
            with pytest.raises(UpstreamError) as caught:
                await stream.message()
            assert caught.value.status == status
            asked = caught.value.retry_after
            assert asked is None or asked > 60 or not caught.value.retryable
            assert (len(provider.requests), waits) == (1, [])
        else:
            await stream.message()
            assert len(provider.requests) == 2
            assert len(waits) == 1
            assert between[0] <= waits[0] <= between[1]
            first, second = provider.requests
            assert (first.body, first.headers) == (second.body, second.headers)


# every route


async def _answer(client: AutoLLMClient, _: str) -> None:
    await client.streaming_response([QUESTION]).message()


async def _stateful(client: AutoLLMClient, _: str) -> None:
    await client.streaming_response_stateful(QUESTION).message()


async def _models(client: AutoLLMClient, _: str) -> None:
    await client.list_models()


async def _picture(client: AutoLLMClient, url: str) -> None:
    message: Any = {
        "role": "user",
        "content_items": [{"type": "image_url.done", "image_url": f"{url}/a.png"}],
    }
    await client.streaming_response([message]).message()


Route = Callable[[AutoLLMClient, str], Awaitable[None]]
ROUTES: tuple[Route, ...] = (_answer, _stateful, _models, _picture)


@pytest.mark.parametrize("client_type", EXHAUSTIVE)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("retries", [0, 2, 3])
async def test_every_route_is_tried_as_often(
    client_type: str, route: Route, retries: int, waits: list[float]
) -> None:
    refusal = Answer.error(503, "no")
    with ScriptedProvider(refusal) as provider:
        client = client_of(
            provider, client_type, max_retries=retries, allow_private_image_urls=True
        )
        with pytest.raises(ValueError, match="503"):
            await route(client, provider.base_url)
        assert (len(provider.requests), len(waits)) == (retries + 1, retries)


@pytest.mark.no_debug
@pytest.mark.parametrize("client_type", EXHAUSTIVE)
@pytest.mark.parametrize("route", ROUTES)
async def test_on_every_route_a_stop_during_the_wait_sends_nothing_more(
    client_type: str, route: Route
) -> None:
    refusal = Answer.error(503, "no", headers={"retry-after": "30"})
    with ScriptedProvider(refusal) as provider:
        client = client_of(provider, client_type, allow_private_image_urls=True)
        task = asyncio.ensure_future(route(client, provider.base_url))
        await provider.until("idle")
        await asyncio.sleep(0.05)
        before = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - before < 0.2
        await asyncio.sleep(0.05)
        assert len(provider.requests) == 1


# the waits themselves


def connector(**settings: Any) -> Connector:
    def route(url: str) -> Any:
        raise AssertionError(url)

    defaults: dict[str, Any] = {"timeouts": Timeouts(), "limits": Limits(), "max_retries": 99}
    return Connector(client="C", route=route, **(defaults | settings))


def test_the_waits_double_up_to_eight_seconds_and_are_spread_over_a_quarter() -> None:
    random.seed(11)
    error = UpstreamError("no", client="C", status=503, retryable=True)
    for attempt, full in enumerate([0.5, 1, 2, 4, 8, 8, 8, 8]):
        waits = [
            connector().wait_before_retry(error, attempt, answered=True) or 0 for _ in range(2000)
        ]
        shares = [wait / full for wait in waits]
        assert 0.75 <= min(shares) < 0.76
        assert 0.99 < max(shares) <= 1
        assert abs(statistics.mean(shares) - 0.875) < 0.01
        quarters = statistics.quantiles(shares, n=4)
        for found, expected in zip(quarters, (0.8125, 0.875, 0.9375), strict=True):
            assert abs(found - expected) < 0.02


def test_a_very_late_attempt_waits_as_long_as_any() -> None:
    error = UpstreamError("no", client="C", status=503, retryable=True)
    wait = connector(max_retries=5000).wait_before_retry(error, 1000, answered=True)
    assert wait is not None
    assert 6 <= wait <= 8


@pytest.mark.parametrize(
    ("error", "answered", "again"),
    [
        (UpstreamConnectionError("no", client="C", phase="connect"), False, True),
        (UpstreamConnectionError("no", client="C", phase="head"), False, True),
        (UpstreamConnectionError("no", client="C", phase="head"), True, False),
        (UpstreamConnectionError("no", client="C", phase="tls", retryable=False), False, False),
        (UpstreamTimeoutError("late", client="C", phase="connect", seconds=1), False, True),
        (UpstreamTimeoutError("late", client="C", phase="first_event", seconds=1), False, False),
        (UpstreamTimeoutError("late", client="C", phase="idle", seconds=1), True, False),
        (UpstreamTimeoutError("late", client="C", phase="total", seconds=1), False, False),
    ],
)
def test_which_failures_are_tried_again(error: Any, answered: bool, again: bool) -> None:
    wait = connector().wait_before_retry(error, 0, answered=answered)
    assert (wait is not None) is again


# kept connections that die


async def test_a_kept_connection_that_dies_does_not_count_and_is_not_waited_for(
    waits: list[float], tls: bool
) -> None:
    """With all its attempts before it: three refusals behind a connection that was dead."""
    refusal = head("content-length: 0", "connection: close", status="HTTP/1.1 503 Busy")
    body = b"".join(WIRES["openai-chat"].answer("All is well"))
    async with RawServer(whole(body), b"", secure=tls) as server:
        client = client_of_raw(server, max_retries=2)
        await client.streaming_response([QUESTION]).message()
        server._answers = [(refusal,)]
        with pytest.raises(UpstreamError):
            await client.streaming_response([QUESTION]).message()
        # answered, found dead, and then the three attempts of the call
        assert (len(server.requests), len(waits)) == (1 + 1 + 3, 2)


async def test_a_stop_while_a_dead_connection_is_replaced_is_a_stop(waits: list[float]) -> None:
    signal = AbortSignal()
    body = b"".join(WIRES["openai-chat"].answer("All is well"))
    async with RawServer(whole(body), b"") as server:
        client = client_of_raw(server, max_retries=2)
        await client.streaming_response([QUESTION]).message()
        stream = client.streaming_response([QUESTION], signal=signal)
        reading = asyncio.create_task(stream.__anext__())
        while len(server.requests) < 2:
            await asyncio.sleep(0)
        signal.abort("why")
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.sleep(0.05)
        assert len(server.requests) == 2
        assert waits == []
