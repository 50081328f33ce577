"""`Remote`: stopping a stream that another process holds, through Redis or Valkey.

Every process keeps a `Ledger` there of what it holds. Streaming never waits for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .entries import GONE, Command, Entry, owner_key, stream_key
from .ledger import PATIENCE, Ledger
from .refusal import unreachable
from .running import Running, Streams

__all__ = ["Remote"]

_T = TypeVar("_T")

_ANSWER = 1.0  # s that the holder has for its answer


class Remote:
    """This process's part in it, on one loop. It begins by itself with the first stream.

    Raises `ValueError` for a URL that is none.
    """

    def __init__(self, url: str, streams: Streams, end: Callable[[Running, Any], None]) -> None:
        self._redis: Any = Redis.from_url(
            url,
            socket_connect_timeout=PATIENCE,
            socket_timeout=_ANSWER + PATIENCE,
            retry=Retry(NoBackoff(), 0),
        )
        self.ledger = Ledger(self._redis, streams, end)

    async def stop(self, id: str, owner: str, reason: Any) -> bool:
        """End a stream wherever it runs; False if it is unknown, over, or not this owner's.

        Raises a `Refusal` (503) when Redis does not answer, or the holder not within a second.
        """
        return await self._ask(self._stop(id, owner, reason))

    async def _stop(self, id: str, owner: str, reason: Any) -> bool:
        text = await self._redis.get(stream_key(id))
        if text is None and not self.ledger.is_sure:
            raise unreachable("Redis was away, and it is not known yet what runs elsewhere")
        entry = None if text is None else msgspec.json.decode(text, type=Entry)
        if entry is None or entry.owner != owner:
            return False
        command = Command(id, owner, reason, f"mmsp:answer:{secrets.token_hex(16)}")
        if not await self._redis.publish(entry.holder, msgspec.json.encode(command)):
            raise unreachable("the process that holds the stream does not listen")
        said = await self._redis.blpop([command.answer], timeout=_ANSWER)
        if said is None:
            raise unreachable("the process that holds the stream did not answer")
        return bool(said[1] == b"ended")

    async def of(self, owner: str) -> list[dict[str, Any]]:
        """What is shown of an owner's streams in all processes. Raises a `Refusal` (503)."""
        return await self._ask(self._of(owner))

    async def _of(self, owner: str) -> list[dict[str, Any]]:
        ids = await self._redis.zrange(owner_key(owner), 0, -1)
        texts = await self._redis.mget([stream_key(id.decode()) for id in ids]) if ids else []
        entries = [msgspec.json.decode(text, type=Entry) for text in texts if text is not None]
        return [entry.shown for entry in entries if entry.owner == owner]

    async def _ask(self, work: Awaitable[_T]) -> _T:
        self.ledger.begin()
        try:
            async with asyncio.timeout(_ANSWER + 2 * PATIENCE):
                return await work
        except GONE as error:
            raise unreachable(f"Redis does not answer ({type(error).__name__})") from None

    async def aclose(self) -> None:
        """Take back what is written down and leave."""
        await self.ledger.aclose()
        await self._redis.aclose()
