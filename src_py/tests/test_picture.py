"""The size of a picture from its first bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp.codecs.picture import needs_detail, size


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little")


def webp(kind: bytes, fields: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + fields.ljust(16, b"\0")


def lossy(width: int, height: int) -> bytes:
    sides = (width | 0x4000).to_bytes(2, "little") + height.to_bytes(2, "little")
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + sides)


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little"))


def extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\0\0\0\0" + sides)


def jpeg(width: int, height: int) -> bytes:
    thumbnail = (
        b"\xff\xe1\0\x08\xff\xc0\0\x01\0\x01"  # what looks like a size inside another segment
    )
    table = b"\xff\xff\xc4\0\x04\0\0\xff\xd0"  # a filled marker, and one without a length
    frame = b"\xff\xc2\0\x0b\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return b"\xff\xd8" + thumbnail + table + frame + b"\x01\0\0\0"


MAKERS = [png, gif, lossy, lossless, extended, jpeg]


@pytest.mark.parametrize("make", MAKERS)
def test_width_and_height(make: object) -> None:
    assert callable(make)
    assert size(make(640, 480)) == (640, 480)


@pytest.mark.parametrize(
    "data",
    [b"", b"%PDF", png(1, 1)[:20], gif(1, 1)[:8], lossy(1, 1)[:20], jpeg(1, 1)[:12], b"\xff\xd8\0" * 9,
     webp(b"ALPH", b""), b"\xff\xd8\xff\xda" + b"\0" * 99],
)  # fmt: skip
def test_what_is_no_picture_has_no_size(data: bytes) -> None:
    assert size(data) is None


@given(
    st.sampled_from([b"", b"\xff\xd8", b"RIFF\0\0\0\0WEBPVP8X", b"GIF89a"]), st.binary(max_size=60)
)
def test_any_bytes_are_read_to_an_end(head: bytes, rest: bytes) -> None:
    size(head + rest)


def url(data: bytes, head: str = "data:image/png;base64,") -> str:
    return head + base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("picture", "fine"),
    [
        (url(png(32 * 200, 32 * 150)), False),
        (url(png(32 * 200, 32 * 150 + 1)), True),
        (url(png(655_350, 3200)), False),  # scaled to 65,535 × 320 first
        (url(png(65_535, 3200)), True),
        (url(png(0, 0)), False),
        (url(b"no picture"), False),
        (url(png(9999, 9999), "data:image/png,"), False),
        ("data:image/png;base64,!", False),
        ("data:image/png;base64,é", False),
        ("https://x/a.png", False),
    ],
)
def test_which_pictures_have_too_many_patches(picture: str, fine: bool) -> None:
    assert needs_detail(picture) is fine
