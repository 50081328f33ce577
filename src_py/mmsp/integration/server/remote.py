"""Stopping a stream that another process holds, through Redis or Valkey. Streaming never waits for it.

    mmsp:stream:<id>     JSON: the owner, the holder's channel, what is shown; leased for 30 s and renewed
    mmsp:owner:<owner>   sorted set: the ids of an owner's streams, by the end of their lease
    mmsp:holder:<name>   channel: commands to the process that holds streams
    mmsp:answer:<name>   list: the holder's answer to one command

Owners are HMACs of keys (`keys.py`); a key never gets here. Where Redis does not answer, streams begin
and run all the same, and are written down again when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from .refusal import unreachable
from .running import Running, Streams

__all__ = ["Remote"]

_T = TypeVar("_T")

_log = logging.getLogger("mmsp.server")

_LEASE = 30  # s
_RENEW = 10.0  # s
_ANSWER = 1.0  # s that the holder has for its answer
_PATIENCE = 1.0  # s for Redis itself
_PAUSE = 1.0  # s until Redis is tried again
_GONE = (RedisError, OSError, TimeoutError)


class Remote:
    """This process's part in it. It begins with the first stream, on that stream's loop."""

    def __init__(self, url: str, streams: Streams, end: Callable[[Running, Any], None]) -> None:
        self._url = url
        self._streams = streams
        self._end = end
        self._holder = f"mmsp:holder:{secrets.token_hex(8)}"
        self._redis: Any = None  # its types tell neither what is bytes nor what is awaited
        self._tasks: set[asyncio.Task[Any]] = set()
        self._down_until = 0.0

    # ---- holding

    async def claim(self, running: Running) -> bool:
        """Write a stream down; False if one with this id runs in another process."""
        if time.monotonic() < self._down_until:
            return True
        try:
            return await self._write(running, new=True)
        except _GONE as error:
            self._say_down(error)
            return True

    def announce(self, running: Running) -> None:
        """Write down a stream whose id is new for certain, without waiting."""
        self._begin()
        self._later(self.claim(running))

    def forget(self, running: Running) -> None:
        if self._redis is not None and time.monotonic() >= self._down_until:
            self._later(self._remove(running))

    async def _write(self, running: Running, *, new: bool = False) -> bool:
        entry = msgspec.json.encode(
            {"owner": running.owner, "holder": self._holder, "shown": running.shown()}
        )
        pipe = self._begin().pipeline(transaction=False)
        pipe.set(_stream(running.id), entry, ex=_LEASE, nx=new)
        if running.owner:
            pipe.zadd(_owner(running.owner), {running.id: time.time() + _LEASE})
            pipe.expire(_owner(running.owner), _LEASE)
        return bool((await pipe.execute())[0])

    async def _remove(self, running: Running) -> None:
        pipe = self._begin().pipeline(transaction=False)
        pipe.delete(_stream(running.id))
        pipe.zrem(_owner(running.owner), running.id)
        try:
            await pipe.execute()
        except _GONE as error:
            self._say_down(error)

    async def _keep(self) -> None:
        """Hear commands and renew the leases, again and again from the beginning when Redis is gone."""
        while True:
            try:
                await self._listen()
            except _GONE as error:
                self._say_down(error)
            await asyncio.sleep(_PAUSE)

    async def _listen(self) -> None:
        async with self._begin().pubsub() as channel:
            await channel.subscribe(self._holder)
            renewed = 0.0
            while True:
                if time.monotonic() >= renewed + _RENEW:
                    renewed = time.monotonic()
                    for running in self._streams:
                        await self._write(running)
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
                if message is not None:
                    self._later(self._obey(msgspec.json.decode(message["data"])))

    async def _obey(self, command: dict[str, Any]) -> None:
        running = self._streams.find(command["id"], command["owner"])
        if running is not None:
            self._end(running, command["reason"])
        pipe = self._begin().pipeline(transaction=False)
        pipe.rpush(command["answer"], b"ended" if running is not None else b"unknown")
        pipe.expire(command["answer"], 10)
        try:
            await pipe.execute()
        except _GONE as error:
            self._say_down(error)

    # ---- asking

    async def stop(self, id: str, owner: str, reason: Any) -> bool:
        """End a stream wherever it runs; False if it is unknown, over, or not this owner's.

        Raises a `Refusal` (503) when Redis does not answer, or the holder not within a second.
        """
        return await self._ask(self._stop(id, owner, reason))

    async def _stop(self, id: str, owner: str, reason: Any) -> bool:
        redis = self._begin()
        entry = await redis.get(_stream(id))
        found = {} if entry is None else msgspec.json.decode(entry)
        if not found or found["owner"] != owner:
            return False
        answer = f"mmsp:answer:{secrets.token_hex(16)}"
        command = {"id": id, "owner": owner, "reason": reason, "answer": answer}
        if not await redis.publish(found["holder"], msgspec.json.encode(command)):
            raise unreachable("the process that holds the stream does not listen")
        said = await redis.blpop([answer], timeout=_ANSWER)
        if said is None:
            raise unreachable("the process that holds the stream did not answer")
        return bool(said[1] == b"ended")

    async def of(self, owner: str) -> list[dict[str, Any]]:
        """What is shown of an owner's streams in all processes. Raises a `Refusal` (503)."""
        return await self._ask(self._of(owner))

    async def _of(self, owner: str) -> list[dict[str, Any]]:
        redis = self._begin()
        ids = await redis.zrangebyscore(_owner(owner), time.time(), "+inf")
        entries = await redis.mget([_stream(id.decode()) for id in ids]) if ids else []
        return [msgspec.json.decode(entry)["shown"] for entry in entries if entry is not None]

    async def _ask(self, work: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(_ANSWER + 2 * _PATIENCE):
                return await work
        except _GONE as error:
            self._say_down(error)
            raise unreachable(f"Redis does not answer ({type(error).__name__})") from None

    # ---- life

    def _begin(self) -> Any:
        if self._redis is None:
            self._redis = Redis.from_url(
                self._url,
                socket_connect_timeout=_PATIENCE,
                socket_timeout=_ANSWER + _PATIENCE,
                retry=Retry(NoBackoff(), 0),
            )
            self._later(self._keep())
        return self._redis

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _say_down(self, error: BaseException) -> None:
        now = time.monotonic()
        if now >= self._down_until:
            _log.warning(
                "Redis does not answer (%s): streams go on, stops by id may not reach other processes",
                type(error).__name__,
            )
        self._down_until = now + _PAUSE

    async def aclose(self) -> None:
        """Take back what is written down and leave."""
        redis, tasks = self._redis, list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if redis is not None:
            for running in self._streams:
                await self._remove(running)
            self._redis = None
            await redis.aclose()


def _stream(id: str) -> str:
    return f"mmsp:stream:{id}"


def _owner(owner: str) -> str:
    return f"mmsp:owner:{owner}"
