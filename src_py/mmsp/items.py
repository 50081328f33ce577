"""The kinds of items an answer is made of, and `Group`: an item on its way, in pieces.

A kind says which field of its items grows; everything else about them is in their first delta.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["KINDS", "Fidelity", "Group", "Item", "Kind"]

Item = dict[str, Any]
Fidelity = dict[str, Any]


class _Pieces(Protocol):
    """What joins the pieces of a growing field in time and memory proportional to their length."""

    def write(self, piece: Any, /) -> Any: ...

    def getvalue(self) -> Any: ...


class _Numbers(list[float]):
    write = list.extend

    def getvalue(self) -> list[float]:
        return list(self)


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table: the field that grows, how its pieces join, what only a first delta says."""

    name: str
    grows: str
    pieces: Callable[[], _Pieces]
    said_once: tuple[str, ...] = ()
    whole: bool = False
    thought: bool = False


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("text", "text", io.StringIO),
        Kind("thinking", "thinking", io.StringIO, thought=True),
        Kind("tool_call", "arguments", io.StringIO, said_once=("name", "tool_call_id")),
        Kind("inline_data", "data", io.BytesIO),
        Kind("inline_thinking", "data", io.BytesIO, whole=True, thought=True),
        Kind("embedding", "embedding", _Numbers, whole=True),
    )
}


@dataclass(slots=True, eq=False)
class Group:
    """An item on its way: open, or a call held back. `first` is its first delta without fidelity."""

    kind: Kind
    id: Hashable
    first: Item
    pieces: _Pieces
    given: Fidelity | None = None  # the fidelity as the decoder gave it
    fidelity: Fidelity | None = None  # the same with wire and host
    ended: bool = False  # no further deltas
    ended_on_wire: bool = False  # by an end of its own that tells that it is whole

    def delta(self, piece: Any) -> Item:
        """A later delta of the group."""
        return {
            **self.first,
            **dict.fromkeys(self.kind.said_once, ""),
            self.kind.grows: piece,
        }

    def done(self) -> Item:
        """The item as it stands; a call's arguments are text still."""
        item = {**self.first, "type": f"{self.kind.name}.done"}
        item[self.kind.grows] = self.pieces.getvalue()
        if self.fidelity is not None:
            item["fidelity"] = self.fidelity
        return item
