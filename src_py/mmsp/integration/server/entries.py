"""What is written down in Redis of streams, and what is said to the process that holds one.

    mmsp:stream:<id>     JSON: the owner, the holder's channel, what is shown; leased for 30 s and renewed
    mmsp:owner:<owner>   sorted set: the ids of an owner's streams, by the end of their lease
    mmsp:holder:<name>   channel: commands to the process that holds streams
    mmsp:answer:<name>   list: the holder's answer to one command

Owners are HMACs of keys (`keys.py`); a key never gets here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from redis.exceptions import RedisError

__all__ = ["GONE", "Command", "Entry", "keys_of", "owner_key", "stream_key"]

GONE = (RedisError, OSError, TimeoutError)  # how Redis is when it does not answer


class Command(msgspec.Struct):
    """To the process that holds a stream: end it, and say so in the list `answer`."""

    id: str
    owner: str
    reason: Any
    answer: str


class Entry(msgspec.Struct):
    """What is written down of a stream."""

    owner: str
    holder: str
    shown: dict[str, Any]


def keys_of(id: str, owner: str) -> list[str]:
    return [stream_key(id), owner_key(owner)] if owner else [stream_key(id)]


def stream_key(id: str) -> str:
    return f"mmsp:stream:{id}"


def owner_key(owner: str) -> str:
    return f"mmsp:owner:{owner}"
