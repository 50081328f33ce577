"""The MMSP wire form: messages, histories and events as JSON text, and back.

It is their own form, with the bytes in `data` of `inline_*` items in base64. What a program keeps in a
tool call's arguments or an item's fidelity is JSON already and passes unchanged, also under that name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .errors import WireFormatError
from .plain import Fault, below, exact, key_text, kind_of, plain_copy, text

__all__ = ["dumps", "from_wire", "loads", "to_wire"]

_INLINE = ("inline_data.", "inline_thinking.")

_Data = Callable[[Any], Any]


def dumps(value: Any) -> str:
    """A message, an event, an item, or a list of them, as JSON text. A member of an enum of strings or
    numbers is saved as its string or number.

    >>> dumps({"role": "user", "content_items": [{"type": "text.done", "text": "né"}]})
    '{"role":"user","content_items":[{"type":"text.done","text":"né"}]}'

    Raises `WireFormatError`, which names the place, for what JSON has no form for.
    """
    return msgspec.json.encode(to_wire(value)).decode()


def loads(saved: str | bytes | bytearray | memoryview) -> Any:
    """What `dumps` was given. Raises `WireFormatError` for what is no such text."""
    if not isinstance(saved, str | bytes | bytearray | memoryview):
        raise WireFormatError(
            f"this is {kind_of(saved)}; what dumps made is a str, or the same as bytes", path="$"
        )
    try:
        value = msgspec.json.decode(exact(saved) if isinstance(saved, str) else saved)
    except (ValueError, RecursionError, BufferError) as error:
        raise WireFormatError(f"this is no JSON: {error}", path="$") from None
    return from_wire(value)


def to_wire(value: Any) -> Any:
    """`value` as plain JSON objects, with containers of its own."""
    return _converted(value, _encoded)


def from_wire(value: Any) -> Any:
    """The opposite of `to_wire`."""
    return _converted(value, _decoded)


def _converted(value: Any, data: _Data) -> Any:
    try:
        return _things(value, data)
    except Fault as fault:
        path = f"${fault.path}"
        raise WireFormatError(f"{path} {fault.problem}", path=path) from None
    except RecursionError:
        raise WireFormatError("$ is nested too deeply, or holds itself", path="$") from None


def _things(value: Any, data: _Data) -> Any:
    """Messages, events, items and lists of them; `data` converts what an inline item holds."""
    if isinstance(value, list | tuple):
        return [below(at, _things, part, data) for at, part in enumerate(value)]
    if not isinstance(value, Mapping):
        raise Fault(f"is {kind_of(value)}; a message, an event or an item is an object")
    kind = value.get("type")
    inline = isinstance(kind, str) and kind.startswith(_INLINE)
    return {
        (name := key_text(key)): below(name, _field, name, part, inline, data)
        for key, part in value.items()
    }


def _field(key: str, value: Any, inline: bool, data: _Data) -> Any:
    if key == "data" and inline:
        return data(value)
    if key == "content_items" and isinstance(value, list | tuple):
        return _things(value, data)
    return plain_copy(value)


def _encoded(data: Any) -> str:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise Fault(f"is {kind_of(data)}; it is bytes")
    return base64.b64encode(data).decode()


def _decoded(saved: Any) -> bytes:
    try:
        return base64.b64decode(text(saved), validate=True)
    except (binascii.Error, ValueError):
        raise Fault("is no base64") from None
