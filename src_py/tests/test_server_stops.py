"""Stopping a stream that another process holds, through a real Redis, and what happens without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmsp.integration.server import create_server_app
from mmsp.testing import Answer, ScriptedProvider, chat, gate, say, stall
from tests.asking import complete
from tests.redis_process import RedisProcess, redis_process
from tests.server_process import ServerProcess, eventually, server, start, write_config
from tests.serving import KEY, MODEL, Caller, Reply, app_for, request, row, served

ID = "a-chosen-id-of-ours"
CHOSEN = {"mmsp-stream-id": ID}
OTHER_KEY = "team-key-2"
MID_ITEM = Answer(say(chat.text("One")), stall())
REASON = {"reason": {"by": "the operator", "why": ["änd", 1]}}


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    with (
        tempfile.TemporaryDirectory(
            prefix="mmsp-redis-"
        ) as folder,  # a socket's path must be short
        redis_process(Path(folder)) as running,
    ):
        yield running


@contextlib.asynccontextmanager
async def two_servers(
    provider: ScriptedProvider, redis: RedisProcess, folder: Path
) -> AsyncIterator[tuple[ServerProcess, ServerProcess]]:
    """On different ports, as on two machines."""
    path = write_config(folder, row(provider), keys=(KEY, OTHER_KEY))
    options = ("--redis", redis.url, "--grace", "0")
    async with server(path, *options) as first, server(path, *options) as second:
        yield first, second


async def begin(caller: Caller, **options: Any) -> Reply:
    await caller.ask(**options)
    reply = await caller.head()
    assert reply.status == 200
    await caller.until_event(reply)
    return reply


async def rest_of(caller: Caller, reply: Reply) -> list[Any]:
    while data := await caller.piece():
        reply.body += data
    return reply.events


async def stop(running: ServerProcess, id: str = ID, body: Any = None, key: str = KEY) -> Reply:
    return await request(running.place, "DELETE", f"/v1/streams/{id}", body, key=key)


async def written_down(redis: RedisProcess, id: str = ID) -> None:
    await eventually(lambda: f"mmsp:stream:{id}" in redis.names())


async def nothing_written(redis: RedisProcess) -> None:
    await eventually(lambda: not redis.names("mmsp:stream:*") | redis.names("mmsp:owner:*"))


# ---- stopping elsewhere


@pytest.mark.parametrize("chosen", [True, False])
async def test_a_stream_is_stopped_from_another_process(
    redis: RedisProcess, tmp_path: Path, chosen: bool
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with two_servers(provider, redis, tmp_path) as (first, second):
            async with Caller(first.place) as caller:
                reply = await begin(caller, headers=CHOSEN if chosen else {})
                id = reply.headers["mmsp-stream-id"]
                await written_down(redis, id)
                assert (await stop(second, id, REASON)).status == 204
                await provider.connections[0].until_closed()
                *_, error, done = await rest_of(caller, reply)
                assert error["error"]["type"] == "StreamAbortedError"
                assert error["error"]["reason"] == REASON["reason"]
                assert done == "[DONE]"
            await nothing_written(redis)
            assert (await stop(second, id)).status == 404


async def test_before_the_first_event_it_is_stopped_as_well(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(Answer(stall())) as provider:
        async with (
            two_servers(provider, redis, tmp_path) as (first, second),
            Caller(first.place) as caller,
        ):
            await caller.ask(headers=CHOSEN)
            await provider.until("stalled")
            assert (await stop(second)).status == 204
            reply = await caller.whole()
            assert (reply.status, reply.error["type"]) == (503, "StreamAbortedError")
            await provider.connections[0].until_closed()


async def test_what_is_not_there_or_not_yours_is_not_found(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with (
            two_servers(provider, redis, tmp_path) as (first, second),
            Caller(first.place) as caller,
        ):
            reply = await begin(caller, headers=CHOSEN)
            for running in (first, second):
                assert (await stop(running, "nobodys-id-at-all")).status == 404
                assert (await stop(running, key=OTHER_KEY)).status == 404
                assert (await stop(running, key="wrong")).status == 401
            assert len(reply.events) == 1
            assert provider.connections[0].closed_ns is None


async def test_workers_of_one_server_stop_streams_of_one_another(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--workers", "2", "--redis", redis.url) as running:
            for n in range(6):  # the worker that is asked is the holder, or it is not
                id = f"{ID}-{n}"
                async with Caller(running.place) as caller:
                    reply = await begin(caller, headers={"mmsp-stream-id": id})
                    assert (await stop(running, id)).status == 204
                    assert (await rest_of(caller, reply))[-1] == "[DONE]"
                await provider.connections[n].until_closed()
            await nothing_written(redis)


# ---- chosen ids


async def test_an_id_that_runs_in_another_process_is_taken_until_it_ends(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with two_servers(provider, redis, tmp_path) as (first, second):
            async with Caller(first.place) as caller:
                await begin(caller, headers=CHOSEN)
                for key in (KEY, OTHER_KEY):
                    async with Caller(second.place) as late:
                        await late.ask(headers=CHOSEN, key=key)
                        refused = await late.whole()
                    assert (refused.status, refused.error["type"]) == (409, "ConflictError")
                # It told nothing of the stream to who was refused, and took nothing from its owner.
                listed = await request(second.place, "GET", "/v1/streams", key=OTHER_KEY)
                assert listed.json() == {"object": "list", "data": [], "complete": True}
                assert (await stop(second)).status == 204
            await nothing_written(redis)
            async with Caller(second.place) as again:
                await begin(again, headers=CHOSEN)
            assert len(provider.requests) == 2


async def test_an_id_is_free_for_its_process_at_once(redis: RedisProcess) -> None:
    """What is still to be told of the old stream does not take the new one's entry away."""
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY, redis=redis.url)
        async with served(app) as place:
            for _ in range(20):
                async with Caller(place) as caller:
                    await begin(caller, headers=CHOSEN)
                await app.streams.none_left()
            async with Caller(place) as caller:
                await begin(caller, headers=CHOSEN)
                await asyncio.sleep(0.1)  # for what might come late
                await written_down(redis)
            await nothing_written(redis)


# ---- what is written down


async def test_streams_of_all_processes_are_listed_to_their_owner_alone(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with two_servers(provider, redis, tmp_path) as (first, second):
            callers = [Caller(each.place) for each in (first, first, second)]
            keys = (KEY, OTHER_KEY, KEY)
            async with contextlib.AsyncExitStack() as stack:
                ids = []
                for caller, key in zip(callers, keys, strict=True):
                    await stack.enter_async_context(caller)
                    ids.append((await begin(caller, key=key)).headers["mmsp-stream-id"])

                async def listed(key: str) -> set[str]:
                    shown = (await request(second.place, "GET", "/v1/streams", key=key)).json()
                    assert shown["complete"]
                    assert all(each["model"] == MODEL for each in shown["data"])
                    return {each["id"] for each in shown["data"]}

                async def all_listed() -> bool:
                    return await listed(KEY) == {ids[0], ids[2]} and await listed(OTHER_KEY) == {
                        ids[1]
                    }

                await eventually(all_listed)


async def test_no_key_and_no_word_of_a_conversation_gets_into_redis(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with (
            two_servers(provider, redis, tmp_path) as (first, second),
            Caller(first.place) as caller,
            Caller(second.place) as another,
        ):
            await begin(caller, headers=CHOSEN)
            await begin(another, key=OTHER_KEY)
            await eventually(lambda: len(redis.names("mmsp:stream:*")) == 2)
            everything = redis.dump()
            for word in (KEY, OTHER_KEY, "a-key", "Hello", "One", "Bearer"):
                assert word.encode() not in everything
            with redis.client() as client:
                for key in client.keys("*"):
                    assert 0 < client.ttl(key) <= 30


async def test_a_server_that_ends_takes_back_what_it_wrote(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        path = write_config(tmp_path, row(provider))
        async with (
            server(path, "--redis", redis.url, "--grace", "0") as running,
            Caller(running.place) as caller,
        ):
            await begin(caller)
            await eventually(lambda: len(redis.names("mmsp:stream:*")) == 1)
            running.send(signal.SIGTERM)
            assert await running.ended() == 0
            assert running.complaints == []
    assert redis.names() == set()


async def test_many_short_streams_leave_nothing(redis: RedisProcess) -> None:
    with ScriptedProvider(complete()) as provider:
        app = app_for(provider, KEY, redis=redis.url)
        async with served(app) as place:

            async def ask() -> None:
                async with Caller(place) as caller:
                    await caller.ask()
                    assert (await caller.whole()).events[-1] == "[DONE]"

            for _ in range(5):
                await asyncio.gather(*(ask() for _ in range(20)))
            await nothing_written(redis)


# ---- faults


async def test_a_holder_that_was_killed_is_unreachable_and_then_forgotten(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with (
            two_servers(provider, redis, tmp_path) as (first, second),
            Caller(first.place) as caller,
        ):
            await begin(caller, headers=CHOSEN)
            os.kill(first.pid, signal.SIGKILL)
            await first.process.wait()
            await provider.connections[0].until_closed()
            refused = await stop(second)
            assert (refused.status, refused.error["type"]) == (503, "UnreachableError")
            with redis.client() as client:
                assert 0 < client.pttl(f"mmsp:stream:{ID}") <= 30_000
                client.pexpire(f"mmsp:stream:{ID}", 1)  # 30 s are over
            await eventually(lambda: _is_unknown(second))
            listed = (await request(second.place, "GET", "/v1/streams")).json()
            assert listed["data"] == []


async def _is_unknown(running: ServerProcess) -> bool:
    return (await stop(running)).status == 404


async def test_a_holder_that_does_not_answer_is_unreachable(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with (
            two_servers(provider, redis, tmp_path) as (first, second),
            Caller(first.place) as caller,
        ):
            reply = await begin(caller, headers=CHOSEN)
            first.send(signal.SIGSTOP)
            refused = await stop(second)
            first.send(signal.SIGCONT)
            assert (refused.status, refused.error["type"]) == (503, "UnreachableError")
            assert (await rest_of(caller, reply))[-1] == "[DONE]"  # it heard it later


async def test_streams_outlive_redis_and_can_be_stopped_when_it_is_back(
    redis: RedisProcess, tmp_path: Path
) -> None:
    answer = Answer(say(chat.text("One")), gate("later"), say(chat.text("Two")), stall())
    with ScriptedProvider(answer) as provider:
        async with two_servers(provider, redis, tmp_path) as (first, second):
            async with Caller(first.place) as before, Caller(first.place) as meanwhile:
                early = await begin(before, headers=CHOSEN)
                redis.kill()
                await first.logged("Redis does not answer")
                await second.logged("Redis does not answer")
                late = await begin(meanwhile, headers={"mmsp-stream-id": f"{ID}-2"})
                provider.open("later")
                await before.until_event(early, 2)
                assert (await stop(second)).status == 503
                assert (await stop(second, "nobodys-id-at-all")).status == 503
                listed = (await request(second.place, "GET", "/v1/streams")).json()
                assert listed["complete"] is False
                redis.start()
                for caller, reply, id in ((before, early, ID), (meanwhile, late, f"{ID}-2")):

                    async def is_stopped(id: str = id) -> bool:
                        answer = await stop(second, id)
                        assert answer.status in (204, 503)  # never that it did not run
                        return answer.status == 204

                    await eventually(is_stopped)
                    assert (await rest_of(caller, reply))[-1] == "[DONE]"
                await nothing_written(redis)
            for running in (first, second):
                told = [line for line in running.log if "Redis" in line]
                assert ["WARNING" in line for line in told] == [True, False], told


async def test_what_ended_while_redis_was_away_is_taken_back(redis: RedisProcess) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY, redis=redis.url)
        async with served(app) as place:
            async with Caller(place) as caller:
                await begin(caller, headers=CHOSEN)
                await written_down(redis)
                redis.send(signal.SIGSTOP)
            await app.streams.none_left()
            redis.send(signal.SIGCONT)
            await nothing_written(redis)


async def test_redis_that_hangs_delays_chosen_ids_by_a_second_and_no_other_stream(
    redis: RedisProcess, tmp_path: Path
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--redis", redis.url, "--grace", "0") as running:
            async with Caller(running.place) as caller:
                await begin(caller)
            await nothing_written(redis)
            redis.send(signal.SIGSTOP)
            took = []
            for headers in ({}, CHOSEN, {}, {"mmsp-stream-id": f"{ID}-2"}):
                began = time.monotonic()
                async with Caller(running.place) as caller:
                    await begin(caller, headers=headers)
                    took.append(time.monotonic() - began)
            # Under load a stream may need its time, but never Redis's.
            assert took[0] < 1.0
            assert took[1] < 2.0
            assert took[2] < 1.0
            assert took[3] < 1.0  # it is known by now
            redis.send(signal.SIGCONT)
            await running.logged("Redis answers again")


async def test_a_server_ends_in_time_while_redis_hangs(redis: RedisProcess, tmp_path: Path) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        path = write_config(tmp_path, row(provider))
        async with (
            server(path, "--redis", redis.url, "--grace", "0") as running,
            Caller(running.place) as caller,
        ):
            reply = await begin(caller)
            redis.send(signal.SIGSTOP)
            running.send(signal.SIGTERM)
            assert (await rest_of(caller, reply))[-1] == "[DONE]"
            assert await running.ended() == 0
            assert running.complaints == []


async def test_what_is_said_on_the_channel_by_others_does_no_harm(redis: RedisProcess) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        app = app_for(provider, KEY, redis=redis.url)
        async with served(app) as place, Caller(place) as caller:
            await begin(caller, headers=CHOSEN)
            with redis.client() as client:
                (channel,) = await eventually(lambda: client.pubsub_channels("mmsp:holder:*"))
                for text in (b"", b"\xff", b"{}", b"[1]", b'{"id": 1}'):
                    client.publish(channel, text)
            assert (await request(place, "DELETE", f"/v1/streams/{ID}")).status == 204


@pytest.mark.parametrize("url", ["redis://host:port", "redis://host:6379/x?socket_timeout=long"])
async def test_a_url_that_is_none_stops_the_start(url: str, tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        with pytest.raises(ValueError, match=r"[Pp]ort|socket_timeout"):
            create_server_app([row(provider)], redis=url)
        path = write_config(tmp_path, row(provider))
        running = await start("--config", str(path), "--port", "0", "--redis", url)
        assert await running.ended() == 1
        assert (len(running.log), running.said) == (1, [])


async def test_redis_that_is_not_there_lets_streams_run(tmp_path: Path) -> None:
    secret = "the-password"
    url = f"redis://:{secret}@127.0.0.1:1/0"
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--redis", url) as running:
            for headers in ({}, CHOSEN, {}):
                async with Caller(running.place) as caller:
                    await caller.ask(headers=headers)
                    assert (await caller.whole()).events[-1] == "[DONE]"
            assert (await stop(running)).status == 503
            await running.logged("Redis does not answer")
            assert secret not in "\n".join(running.log)
        assert secret not in repr(app_for(provider, redis=url).settings)
