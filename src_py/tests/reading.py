"""An answer read from pieces of its body, as a stream reads it, without a socket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mmsp import Limits
from mmsp.base_client import LLMClient
from mmsp.errors import MMSPError
from mmsp.grammar import Assembler
from mmsp.reader import AnswerReader
from mmsp.request import Target


@dataclass
class Told:
    """What a caller is told of one answer."""

    items: list[Any] = field(default_factory=list)
    stop: Any = None
    error: BaseException | None = None
    message: Any = None


def told(
    client: type[LLMClient],
    target: Target,
    pieces: Iterable[bytes],
    *,
    limits: Limits | None = None,
    strict: bool = False,
) -> Told:
    """The answer to its end, which is a clean one; a failure is told after all that came before it."""
    codec = client.codec
    assembler = Assembler(client="C", wire=codec.name, host=target.host, strict=strict)
    decoder = codec.decoder(assembler, client="C", target=target)
    reader = AnswerReader(
        client="C", limits=limits or Limits(), assembler=assembler, decoder=decoder
    )
    seen = Told()
    for piece in pieces:
        reader.receive(piece)
        _take(reader, seen)
    if reader.failure is None:
        reader.end()
        _take(reader, seen)
    try:
        if reader.failure is not None:
            raise reader.failure
        seen.items += reader.complete()
    except MMSPError as error:
        seen.error = error
    else:
        message = seen.message = assembler.message()
        seen.stop = {key: message[key] for key in ("usage_metadata", "finish_reason")}
    return seen


def _take(reader: AnswerReader, seen: Told) -> None:
    while reader.decode():
        seen.items += reader.out
        reader.out.clear()
