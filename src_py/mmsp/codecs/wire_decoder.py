"""`WireDecoder`: what every decoder of an event stream does the same way.

It reads an event into the wire's fields, forgivingly where it has to; skips end marks and heartbeats;
puts together the characters that JavaScript servers cut in two; and keeps what the provider's own tools
left until an item takes it. `AnswerDecoder` has what is common to all decoders: it words the errors.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ..errors import ProviderStreamError, StreamProtocolError
from ..grammar import Assembler
from ..masking import beginning
from ..plain import Fault, plain_copy
from .base import BESIDE
from .forgiving import EventReader, plain, whole_characters
from .http_error import Complaint, complaint, stream_error

__all__ = [
    "AnswerDecoder",
    "WireDecoder",
    "count_in",
    "kept",
    "less",
    "object_in",
    "plain_or_none",
    "said_arguments",
]

T = TypeVar("T", bound=msgspec.Struct)

_END = b"[DONE]"


class AnswerDecoder:
    """What a decoder begins with, and how it says that an answer reports a failure or is none."""

    def __init__(self, assembler: Assembler, *, client: str) -> None:
        self.terminal = False
        self._assembler = assembler
        self._client = client

    def next_answer(self) -> None:
        """What comes from here on answers another request of the same call."""
        self.terminal = False

    def _complain(self, answer: Any) -> None:
        """Raise if `answer` reports a failure."""
        if (found := complaint(answer)) is not None:
            raise self._failure(found)

    def _failure(self, found: Complaint) -> ProviderStreamError:
        return stream_error(found, client=self._client, secrets=self._assembler.secrets)

    def _unreadable(self, what: str, data: bytes) -> StreamProtocolError:
        seen = repr(self._shown(data)) if data else "it is empty"
        return StreamProtocolError(f"the provider's answer is {what}: {seen}", client=self._client)

    def _shown(self, data: bytes) -> str:
        return beginning(data, self._assembler.secrets)


class WireDecoder(AnswerDecoder, ABC, Generic[T]):
    """Tells `assembler` what a server says. A wire has its `events`, and `grows`: the fields that
    hold pieces of a text; it reads each event in `_event`. One whose events take more than an
    `EventReader` to read has `exact` instead, and its own `_forgiven`.
    """

    events: ClassVar[EventReader[Any]]
    grows: ClassVar[frozenset[str]]

    def __init__(
        self,
        assembler: Assembler,
        *,
        client: str,
        exact: Callable[[bytes], T] | None = None,
    ) -> None:
        super().__init__(assembler, client=client)
        self._exact = exact or self.events.exact
        self._halves: dict[Hashable, str] = {}
        self._beside: list[Any] = []  # what the provider's tools left and no item has taken yet

    def feed(self, event: str, data: bytes) -> None:
        """One event of the stream. Raises `ProviderStreamError`, `StreamProtocolError`."""
        if self.terminal:
            return
        try:
            self._take(event, data)
        except RecursionError:  # readers and writers of JSON give up at different depths
            raise self._unreadable("JSON nested too deeply", data) from None

    def _take(self, event: str, data: bytes) -> None:
        if self._halves:
            self._odd(event, data)
            return
        try:
            read: T = self._exact(data)
        except (ValueError, RecursionError):
            self._odd(event, data)
        else:
            self._event(event, read, data)

    # ---- what a wire says for itself

    @abstractmethod
    def _event(self, event: str, read: T, data: bytes) -> None: ...

    def _end_mark(self) -> None:
        """The stream's `[DONE]`, which most wires end without and some gateways add."""

    def _text_of(self, answer: dict[str, Any]) -> Hashable:
        """Which text a piece in this event belongs to."""
        return answer.get("index")

    # ---- what does not fit

    def _odd(self, event: str, data: bytes) -> None:
        """Data that is no event as documented: an end mark, a heartbeat, or an imitator's form."""
        text = data.strip()
        if text.startswith(_END):
            self._end_mark()
            return
        if not text or text.startswith(b":"):
            if event == "error":
                raise self._reported(data)
            return
        try:
            answer = plain(data)
        except ValueError:
            if event == "error":
                raise self._failure(Complaint(self._shown(data))) from None
            raise self._unreadable("no JSON", data) from None
        if isinstance(answer, list) and len(answer) == 1:
            answer = answer[0]
        if isinstance(answer, dict):
            self._event(event, self._forgiven(answer), data)
        elif event == "error":
            raise self._reported(data)

    def _forgiven(self, answer: dict[str, Any]) -> T:
        of = self._text_of(answer)
        read: T = self.events.forgive(answer, lambda name, text: self._mend(name, text, of))
        return read

    def _mend(self, name: str, text: str, of: Hashable = None) -> str:
        """`text` in whole characters; half a one at the end of a piece waits for the next piece, and
        meanwhile every event comes by here."""
        return self._joined((of, name), text) if name in self.grows else whole_characters(text)

    def _joined(self, place: Hashable, text: str) -> str:
        text = self._halves.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._halves[place], text = text[-1], text[:-1]
        return whole_characters(text)

    def _reported(self, data: bytes) -> ProviderStreamError:
        """The failure that an event reports, flat or in an object of its own."""
        answer = plain_or_none(data)
        found = complaint(answer) or complaint({"error": answer}) or Complaint("")
        return self._failure(found)

    # ---- what is the same in several wires

    def _taken(self) -> dict[str, Any] | None:
        return self._rest() or None

    def _rest(self) -> dict[str, Any]:
        """The fidelity that holds what the provider's tools left, for the item that takes it."""
        taken, self._beside = self._beside, []
        return {BESIDE: taken} if taken else {}

    def _bytes(self, text: str) -> bytes:
        """The bytes of a picture or sound. Raises `StreamProtocolError`."""
        try:
            return base64.b64decode(text)
        except ValueError:  # characters that are none of base64's, and too few of them
            raise StreamProtocolError(
                "the provider sent data that is no base64", client=self._client
            ) from None


def plain_or_none(data: bytes) -> Any:
    try:
        return plain(data)
    except ValueError:
        return None


def object_in(data: bytes, name: str) -> dict[str, Any]:
    """The member of an event as it came, with all that is not read; empty if it is no object, or
    nested too deeply."""
    answer = plain_or_none(data)
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    found = answer.get(name) if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


def kept(aside: Any) -> list[Any]:
    """What a provider's own tool left, to be sent back: as a list of one, empty where it could not be."""
    try:
        return [plain_copy(aside)]
    except Fault:
        return []


def said_arguments(raw: msgspec.Raw | None) -> str:
    """A call's arguments, as its beginning has them; an empty object says nothing, pieces are to come."""
    text = bytes(raw).decode().strip() if raw is not None else ""
    return "" if text in ("", "null") or text.replace(" ", "") == "{}" else text


def count_in(usage: Any, name: str) -> int | None:
    """A count of tokens in an object that no typed reader has read."""
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def less(count: int | None, part: int | None) -> int | None:
    """A count of tokens without a part of it that is counted by itself.

    A part that is more than the whole was never in it: xAI's models and some gateways leave the thoughts
    out of the answer's tokens.
    """
    return count if count is None or part is None or part > count else count - part
