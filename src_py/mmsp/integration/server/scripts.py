"""What Redis does in one step for a process that holds streams: nobody touches what another holds.

KEYS: the stream's entry, and its owner's set if it has an owner. ARGV: the holder, the stream's id, and
for `WRITE` the entry's text and its lease in seconds. The clock is Redis's own.
"""

from __future__ import annotations

__all__ = ["REMOVE", "WRITE"]

_IF_NOT_ANOTHERS = """
local entry = redis.call('GET', KEYS[1])
if entry and cjson.decode(entry)['holder'] ~= ARGV[1] then return 0 end
"""

# 1, or 0 where another process has a stream with this id.
WRITE = (
    _IF_NOT_ANOTHERS
    + """
redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4])
if KEYS[2] then
    local now = tonumber(redis.call('TIME')[1])
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. now)
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[2])
    redis.call('EXPIRE', KEYS[2], ARGV[4])
end
return 1
"""
)

REMOVE = (
    _IF_NOT_ANOTHERS
    + """
redis.call('DEL', KEYS[1])
if KEYS[2] then redis.call('ZREM', KEYS[2], ARGV[2]) end
return 1
"""
)
