"""The size of a picture, from its first bytes: PNG, GIF, WebP, JPEG.

OpenAI's newest models look at a picture in patches of 32×32 pixels and scale it down beyond a number
of them unless `detail` says "high"; so the request has to know how large a picture is.
"""

from __future__ import annotations

import base64
import math

__all__ = ["needs_detail", "size"]

_PATCH = 32
_PATCHES = 30_000  # more are scaled down unless high detail is asked for
_LONGEST_SIDE = 65_535  # a longer one is scaled to this first

# JPEG: start-of-frame markers hold the size; C4, C8 and CC in their range mean other things.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset({0x01, 0xFF, *range(0xD0, 0xD9)})  # markers without a length


def needs_detail(url: str) -> bool:
    """Whether `url` is a base64 `data:` URL of a picture with more patches than the model takes."""
    head, comma, payload = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        return False
    try:
        found = size(base64.b64decode(payload))
    except ValueError:
        return False
    return found is not None and _patches(*found) > _PATCHES


def size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None for what is no picture of a known kind."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return _big(data, 16, 4), _big(data, 20, 4)
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return _little(data, 6, 2), _little(data, 8, 2)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp(data)
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    return None


def _patches(width: int, height: int) -> int:
    scale = min(1.0, _LONGEST_SIDE / max(width, height, 1))
    return math.ceil(width * scale / _PATCH) * math.ceil(height * scale / _PATCH)


def _webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case b"VP8L":
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        at += 1 if marker == 0xFF else 2 if marker in _BARE else 2 + _big(data, at + 2, 2)
    return None


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")
