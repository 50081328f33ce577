"""`Ledger`: what this process holds, written down in Redis, and the commands that come for it.

It is written down by one task, from what runs at that moment and not from what happened, so that a
beginning and an end cannot overtake each other, and what Redis has lost or missed is made good when it is
back. Only a stream whose id the caller chose waits for Redis, a second at most: the id may be taken
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from .entries import GONE, Command, Entry, keys_of
from .running import Running, Streams
from .scripts import REMOVE, WRITE

__all__ = ["PATIENCE", "Ledger"]

PATIENCE = 1.0  # s for Redis itself

_log = logging.getLogger("mmsp.server")

_LEASE = 30  # s
_RENEW = 10.0  # s
_PAUSE = 1.0  # s until Redis is tried again
_UNSURE = 4.0  # s after Redis is back, in which all processes have written down what they hold
_AT_ONCE = 500  # streams in one message to Redis


class Ledger:
    """Of one process, on one loop. `end` ends a stream for somebody who may."""

    def __init__(self, redis: Any, streams: Streams, end: Callable[[Running, Any], None]) -> None:
        self._redis = redis  # its types tell neither what is bytes nor what is awaited
        self._streams = streams
        self._end = end
        self._holder = f"mmsp:holder:{secrets.token_hex(8)}"
        self._tasks: set[asyncio.Task[Any]] = set()
        # by id, the owners of streams that are not written down as they are
        self._changed: dict[str, str] = {}
        self._bell = asyncio.Event()
        self._has_begun = False
        self._is_down = False
        self._is_closed = False
        self._sure_at = 0.0

    @property
    def is_sure(self) -> bool:
        """Whether a stream that is not written down runs nowhere."""
        return not self._is_down and time.monotonic() >= self._sure_at

    async def claim(self, running: Running) -> bool:
        """Write a stream down; False if one with this id runs in another process."""
        self.announce(running)  # for the case that this does not come through
        if self._is_down:
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                return bool(await self._redis.eval(*self._written(running)))
        except GONE as error:
            self._say_down(error)
            return True

    def announce(self, running: Running) -> None:
        """Have a stream written down, without waiting."""
        if not self._is_closed:
            self.begin()
            self._changed[running.id] = running.owner
            self._bell.set()

    def forget(self, running: Running) -> None:
        """The same of its end."""
        self.announce(running)

    def _written(self, running: Running) -> tuple[Any, ...]:
        entry = Entry(running.owner, self._holder, running.shown())
        keys = keys_of(running.id, running.owner)
        text = msgspec.json.encode(entry)
        return WRITE, len(keys), *keys, self._holder, running.id, text, _LEASE

    def _removed(self, id: str, owner: str) -> tuple[Any, ...]:
        keys = keys_of(id, owner)
        return REMOVE, len(keys), *keys, self._holder, id

    # ---- the task that writes and listens

    async def _keep(self) -> None:
        """Again and again from the beginning when Redis is gone."""
        # a task group that fails while it is cancelled forgets that it was
        while not self._is_closed:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(self._holder)
                    await self._write_changes()
                    self._say_back()
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._listen(channel))
                        group.create_task(self._renew())
                        group.create_task(self._write())
            except* GONE as group:
                self._say_down(_first(group))
            if not self._is_closed:
                await asyncio.sleep(_PAUSE)

    async def _listen(self, channel: Any) -> None:
        # redis-py now and then takes a cancellation for its own time-out
        while not _is_cancelled():
            message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                with contextlib.suppress(msgspec.DecodeError):  # no command of ours
                    self._later(self._obey(msgspec.json.decode(message["data"], type=Command)))

    async def _renew(self) -> None:
        while True:
            self._changed |= {running.id: running.owner for running in self._streams}
            self._bell.set()
            await asyncio.sleep(_RENEW)

    async def _write(self) -> None:
        while not _is_cancelled():
            await self._bell.wait()
            await self._write_changes()

    async def _write_changes(self) -> None:
        """Also without any: Redis that does not answer is noticed so."""
        while True:
            self._bell.clear()
            changes = dict(list(self._changed.items())[:_AT_ONCE])
            pipe = self._redis.pipeline(transaction=False)
            pipe.ping()
            for id, owner in changes.items():
                self._changed.pop(id)
                running = self._streams.find(id, owner)
                if running is None or self._is_closed:
                    pipe.eval(*self._removed(id, owner))
                else:
                    pipe.eval(*self._written(running))
            try:
                await pipe.execute()
            except BaseException:
                self._changed = changes | self._changed
                raise
            if not self._changed:
                return

    async def _obey(self, command: Command) -> None:
        running = self._streams.find(command.id, command.owner)
        if running is not None:
            self._end(running, command.reason)
        pipe = self._redis.pipeline(transaction=False)
        pipe.rpush(command.answer, b"ended" if running is not None else b"unknown")
        pipe.expire(command.answer, 10)
        with contextlib.suppress(*GONE):  # then who asked is told that nobody answers
            await pipe.execute()

    # ---- life

    def begin(self) -> None:
        """Listen to commands; before the first stream, to notice already then that Redis is away."""
        if not self._has_begun:
            self._has_begun = True
            self._later(self._keep())

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _say_down(self, error: BaseException) -> None:
        if not self._is_down and not self._is_closed:
            self._is_down = True
            _log.warning(
                "Redis does not answer (%s): streams go on, stops by id may not reach other processes",
                type(error).__name__,
            )

    def _say_back(self) -> None:
        if self._is_down:
            self._is_down = False
            self._sure_at = time.monotonic() + _UNSURE
            _log.info("Redis answers again")

    async def aclose(self) -> None:
        """Take back what is written down."""
        if self._is_closed:
            return
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._has_begun:
            self._changed |= {running.id: running.owner for running in self._streams}
            with contextlib.suppress(*GONE):
                async with asyncio.timeout(PATIENCE):
                    await self._write_changes()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
