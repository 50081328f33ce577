"""Scopes around a stream keep their meaning: time-outs, task groups, anyio's cancel scopes.

A stop of ours is an error of the stream and never a cancellation of its reader; a cancellation from outside
closes the connection and goes on as it came. Afterwards the loop has nothing left to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from mmsp import AbortError, AbortSignal
from mmsp.testing import Answer, ScriptedProvider, say, stall
from tests.asking import QUESTION, client_of, shown
from tests.interruption_table import EXHAUSTIVE, WIRES

pytestmark = [pytest.mark.no_debug, pytest.mark.parametrize("client_type", EXHAUSTIVE)]


@pytest.fixture
async def silent(client_type: str) -> AsyncIterator[ScriptedProvider]:
    """A provider that says one text and falls silent; what it served must be closed at the end."""
    with ScriptedProvider(Answer(say(WIRES[client_type].text("a")), stall())) as provider:
        yield provider
        for record in provider.connections:
            await record.until_closed(0.2)
            assert record.closed_by is not None


async def test_asyncio_timeout_ends_as_a_timeout(
    client_type: str, silent: ScriptedProvider
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05) as scope:
            await client_of(silent, client_type).streaming_response([QUESTION]).message()
    assert scope.expired()


async def test_asyncio_timeout_that_never_fires_does_not_touch_an_abort(
    client_type: str, silent: ScriptedProvider
) -> None:
    with pytest.raises(AbortError):
        async with asyncio.timeout(30) as scope:
            stream = client_of(silent, client_type).streaming_response([QUESTION])
            await anext(stream)
            asyncio.get_running_loop().call_later(0.02, stream.abort)
            await anext(stream)
    assert not scope.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_wait_for_ends_as_a_timeout(client_type: str, silent: ScriptedProvider) -> None:
    stream = client_of(silent, client_type).streaming_response([QUESTION])
    await anext(stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.__anext__(), 0.05)
    with pytest.raises(StopAsyncIteration):  # a cancelled read ends the stream
        await anext(stream)


async def test_a_sibling_that_fails_ends_a_task_group(
    client_type: str, silent: ScriptedProvider
) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            stream = client_of(silent, client_type).streaming_response([QUESTION])
            child = group.create_task(stream.message())
            await silent.until("stalled")
            raise KeyError("mine")
    assert [type(each) for each in caught.value.exceptions] == [KeyError]
    assert child.cancelled()


async def test_an_abort_does_not_end_its_task_group(
    client_type: str, silent: ScriptedProvider
) -> None:
    signal = AbortSignal()

    async def sibling() -> str:
        await asyncio.sleep(0.05)
        return "went on"

    async with asyncio.TaskGroup() as group:
        stream = client_of(silent, client_type).streaming_response([QUESTION], signal=signal)
        child, other = group.create_task(stream.message()), group.create_task(sibling())
        await silent.until("stalled")
        signal.abort("why")
    assert child.cancelled()
    assert other.result() == "went on"
    assert stream.reason == "why"


@pytest.mark.parametrize("how", ["cancel", "move on after", "fail after"])
async def test_an_anyio_scope_ends_as_it_does(
    client_type: str, how: str, silent: ScriptedProvider
) -> None:
    stream = client_of(silent, client_type).streaming_response([QUESTION])
    events = []
    try:
        with anyio.CancelScope(
            deadline=anyio.current_time() + (30 if how == "cancel" else 0.1)
        ) as scope:
            if how == "cancel":
                asyncio.get_running_loop().call_later(0.05, scope.cancel)
            async for event in stream:
                events.append(event)
        if how == "fail after":
            assert scope.cancelled_caught
            with anyio.fail_after(0.05):
                async for event in client_of(silent, client_type).streaming_response([QUESTION]):
                    events.append(event)
    except TimeoutError:
        assert how == "fail after"
    assert scope.cancelled_caught
    assert shown(events)[0] == "text.delta a"
    assert not stream.aborted
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_an_anyio_task_group_ends_its_streams(
    client_type: str, silent: ScriptedProvider
) -> None:
    ended: list[str] = []

    async def read() -> None:
        try:
            await client_of(silent, client_type).streaming_response([QUESTION]).message()
        except asyncio.CancelledError as error:
            ended.append(type(error).__name__)
            raise

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(read)
        await silent.until("stalled", count=3)
        group.cancel_scope.cancel()
    assert ended == ["CancelledError"] * 3


async def test_an_abort_inside_an_anyio_scope_is_an_abort(
    client_type: str, silent: ScriptedProvider
) -> None:
    with anyio.CancelScope() as scope:
        stream = client_of(silent, client_type).streaming_response([QUESTION])
        await anext(stream)
        asyncio.get_running_loop().call_later(0.02, stream.abort, "why")
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        await anyio.lowlevel.checkpoint()  # the scope was not cancelled
    assert caught.value.reason == "why"
    assert not scope.cancelled_caught


async def test_a_stream_can_be_closed_in_a_cancelled_scope(
    client_type: str, silent: ScriptedProvider
) -> None:
    """anyio cancels every await of a cancelled scope again and again; closing must get through."""
    with anyio.CancelScope() as scope:
        async with client_of(silent, client_type).streaming_response([QUESTION]) as stream:
            await anext(stream)
            scope.cancel()
            await anext(stream)
    assert scope.cancelled_caught
    await silent.connections[0].until_closed(0.2)


@pytest.mark.parametrize("cancels", [1, 2, 5])
async def test_a_cancel_during_the_clean_up_is_kept(
    client_type: str, cancels: int, silent: ScriptedProvider
) -> None:
    """The second comes while the first is closing the stream: the task ends cancelled, all is closed."""

    async def read() -> None:
        async with client_of(silent, client_type).streaming_response([QUESTION]) as stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    await silent.until("stalled")
    await asyncio.sleep(0.01)
    stopped_ns = time.monotonic_ns()
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert await silent.connections[0].until_closed(1) - stopped_ns < 200_000_000


@pytest.mark.parametrize("turns", range(5))
async def test_an_outer_cancel_while_a_stream_is_being_closed_is_kept(
    client_type: str, turns: int, silent: ScriptedProvider
) -> None:
    stream = client_of(silent, client_type).streaming_response([QUESTION])
    await anext(stream)

    async def close() -> None:
        await stream.aclose()
        await asyncio.sleep(60)

    task = asyncio.create_task(close())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stream.aclose()  # for a task that was cancelled before it began
