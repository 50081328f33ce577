"""Signals made from signals made from signals: thousands deep, and in nets with 2^40 ways through them."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal
from mmsp import timer as timers
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import QUESTION, client_of

DEPTH = 5_000
LEVELS = 40
SOON = 5.0  # s; a walk of all ways through the diamonds would take weeks


def chain(source: AbortSignal, depth: int = DEPTH) -> list[AbortSignal]:
    """Each made from the one before."""
    made = [source]
    for _ in range(depth):
        made.append(AbortSignal.any([made[-1]]))
    return made


def diamonds(source: AbortSignal, levels: int = LEVELS) -> list[AbortSignal]:
    """At each level two signals, both made from both of the level before; one made from the last two."""
    one, other = source, source
    made = [source]
    for _ in range(levels):
        one, other = AbortSignal.any([one, other]), AbortSignal.any([other, one])
        made += [one, other]
    return [*made, AbortSignal.any([one, other])]


NETS = {"chain": chain, "diamonds": diamonds}


@pytest.fixture(params=NETS)
def net(request: pytest.FixtureRequest) -> Iterator[list[AbortSignal]]:
    """A net from its source to its last signal; whatever is done with it is done soon."""
    started = time.monotonic()
    yield NETS[request.param](AbortSignal())
    assert time.monotonic() - started < SOON


def followers(net: list[AbortSignal]) -> int:
    return sum(len(each._followers) for each in net)


def test_the_last_is_aborted_when_the_first_is(net: list[AbortSignal]) -> None:
    source, last = net[0], net[-1]
    assert not last.aborted
    source.abort("why")
    assert (last.aborted, last.reason) == (True, "why")
    with pytest.raises(AbortError):
        last.throw_if_aborted()


def test_whoever_listens_to_the_last_is_told_once_and_nobody_stays(net: list[AbortSignal]) -> None:
    told: list[Any] = []
    source, last = net[0], net[-1]
    last.on_abort(lambda: told.append(last.reason))
    assert followers(net) >= len(net) - 1
    source.abort("why")
    source.abort("again")
    assert told == ["why"]
    assert followers(net) == 0


def test_whoever_leaves_the_last_leaves_nobody_with_the_others(net: list[AbortSignal]) -> None:
    source, last = net[0], net[-1]
    for _ in range(3):
        leave = last.on_abort(lambda: None)
        stay = last.on_abort(lambda: None)
        leave()
        assert source._followers
        stay()
        assert followers(net) == 0


def test_the_abort_of_one_in_the_middle_reaches_those_behind_it_alone(
    net: list[AbortSignal],
) -> None:
    told: list[int] = []
    middle = len(net) // 2
    for place in (0, middle, len(net) - 1):
        net[place].on_abort(partial(told.append, place))
    net[middle].abort("here")
    assert sorted(told) == [middle, len(net) - 1]
    assert (net[0].aborted, net[-1].reason) == (False, "here")
    net[0].abort("later")
    assert (net[middle].reason, net[-1].reason) == ("here", "here")
    assert sorted(told) == [0, middle, len(net) - 1]
    assert followers(net) == 0


def test_the_first_of_several_aborts_is_the_one_that_counts(net: list[AbortSignal]) -> None:
    source, last = net[0], net[-1]
    late = AbortSignal()
    both = AbortSignal.any([late, last])
    source.abort("first")
    late.abort("second")
    assert both.reason == "first"


def test_callbacks_are_called_from_the_source_on(net: list[AbortSignal]) -> None:
    told: list[int] = []
    order = range(0, len(net), max(1, len(net) // 20))
    for place in order:
        net[place].on_abort(partial(told.append, place))
    net[0].abort()
    assert told == list(order)


def test_a_signal_lives_while_somebody_listens_to_the_last_and_no_longer(
    net: list[AbortSignal],
) -> None:
    source = net[0]
    told: list[str] = []
    gone = [weakref.ref(each) for each in net[1:]]
    leave = net[-1].on_abort(lambda: told.append("told"))
    del net[1:]
    gc.collect()
    assert all(each() is not None for each in gone)
    leave()
    del leave
    gc.collect()
    assert [each for each in gone if each() is not None] == []
    source.abort()
    assert told == []


def test_what_nobody_keeps_but_its_listener_is_told_all_the_same(net: list[AbortSignal]) -> None:
    told: list[str] = []
    net[-1].on_abort(lambda: told.append("told"))
    del net[1:]
    gc.collect()
    net[0].abort()
    assert told == ["told"]
    assert not net[0]._followers


async def test_a_stream_that_hangs_on_the_last_is_stopped_in_the_call(
    net: list[AbortSignal],
) -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION], signal=net[-1])
        await anext(stream)
        net[0].abort("why")
        assert stream.aborted
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        assert caught.value.reason == "why"
        assert followers(net) == 0


def test_a_chain_of_any_depth_is_dropped_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    net = chain(AbortSignal.timeout(600), 100_000)
    net[-1].on_abort(lambda: None)()
    del net
    gc.collect()
    assert timers.pending() == 0
    assert complaints == []
