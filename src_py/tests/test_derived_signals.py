"""`AbortSignal.timeout` and `AbortSignal.any`: when they abort, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal
from mmsp import timer as timers
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import QUESTION, client_of, complete

pytestmark = pytest.mark.no_debug


# timeout


def test_a_timeout_aborts_when_its_time_has_come_without_a_loop() -> None:
    started = time.monotonic()
    signal = AbortSignal.timeout(0.1)
    called: list[float] = []
    signal.on_abort(lambda: called.append(time.monotonic() - started))
    assert repr(signal) == "<AbortSignal open>"
    time.sleep(0.3)
    assert isinstance(signal.reason, TimeoutError)
    assert str(signal.reason) == "aborted after 0.1 s"
    assert 0.099 <= called[0] < 0.3
    assert timers.pending() == 0


async def test_a_timeout_stops_a_stream_while_the_loop_is_blocked() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        signal = AbortSignal.timeout(0.2)
        started = time.monotonic_ns()
        stream = client_of(provider).streaming_response([QUESTION], signal=signal)
        await anext(stream)
        time.sleep(0.6)
        closed = provider.connections[0].closed_ns
        assert closed is not None
        assert closed - started < 0.4e9
        with pytest.raises(AbortError) as caught:
            await anext(stream)
        assert caught.value.reason is signal.reason


def test_the_first_of_several_timeouts_comes_first_in_any_order_of_making() -> None:
    order: list[float] = []
    signals = []
    for seconds in (0.12, 0.04, 0.08):
        signal = AbortSignal.timeout(seconds)
        signal.on_abort(partial(order.append, seconds))
        signals.append(signal)
    time.sleep(0.4)
    assert order == [0.04, 0.08, 0.12]


def test_a_timeout_may_be_aborted_before_and_a_dropped_one_leaves_no_timer() -> None:
    signal = AbortSignal.timeout(600)
    assert timers.pending() == 1
    signal.abort("sooner")
    assert signal.reason == "sooner"
    gone = weakref.ref(signal)
    del signal
    gc.collect()
    assert gone() is None
    assert timers.pending() == 0


@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
def test_a_time_that_is_over_aborts_at_once(seconds: float) -> None:
    signal = AbortSignal.timeout(seconds)
    assert signal.aborted
    assert isinstance(signal.reason, TimeoutError)


@pytest.mark.parametrize("seconds", [math.inf, 1e300, 10**300])
def test_a_very_long_time_is_taken(seconds: float) -> None:
    assert not AbortSignal.timeout(seconds).aborted


@pytest.mark.parametrize("seconds", ["1", None, True, [1]])
def test_what_is_no_number_of_seconds_is_refused(seconds: Any) -> None:
    with pytest.raises(TypeError, match="seconds is a number"):
        AbortSignal.timeout(seconds)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(10**400, "that a float can hold"), (-(10**5000), "that a float can hold"), (math.nan, "NaN")],
    ids=["too much", "too little", "NaN"],
)
def test_a_number_that_is_no_time_is_refused(seconds: float, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        AbortSignal.timeout(seconds)
    assert type(caught.value) is ValueError
    assert timers.pending() == 0


def test_the_timer_thread_ends_when_it_has_nothing_to_do() -> None:
    signals = [AbortSignal.timeout(0.01) for _ in range(100)]
    time.sleep(0.05)
    assert all(signal.aborted for signal in signals)
    give_up = time.monotonic() + 2
    while any(thread.name == "mmsp-timer" for thread in threading.enumerate()):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert not AbortSignal.timeout(5).aborted  # and another begins


def test_timers_set_from_many_threads_all_fire() -> None:
    aborted: list[int] = []
    signals: list[AbortSignal] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            signal = AbortSignal.timeout(chance.uniform(0.001, 0.05))
            signal.on_abort(lambda: aborted.append(1))
            signals.append(signal)
            AbortSignal.timeout(600)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    give_up = time.monotonic() + 5
    while len(aborted) < 1600 and time.monotonic() < give_up:
        time.sleep(0.01)
    assert len(aborted) == 1600
    assert timers.pending() == 0


INTERRUPTED = """
import signal, sys, threading, time
from mmsp import AbortSignal, timer
made = []
def handler(number, frame):
    made.append(AbortSignal.timeout(0.01))
    AbortSignal.timeout(600)
signal.signal(signal.SIGUSR1, handler)
def shoot():
    for _ in range(200):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        time.sleep(0.0001)
thread = threading.Thread(target=shoot)
thread.start()
while thread.is_alive():
    made.append(AbortSignal.timeout(0.01))
    AbortSignal.timeout(600)
time.sleep(0.5)
print(all(each.aborted for each in made), timer.pending(), len(made) > 200)
"""

FORKED = """
import os, sys, time
from mmsp import AbortSignal
before = AbortSignal.timeout(0.2)
time.sleep(0.05)
child = os.fork()
after = AbortSignal.timeout(0.1)
time.sleep(0.5)
assert before.aborted and after.aborted
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("both")
"""

LEFT = """
from mmsp import AbortSignal
signal = AbortSignal.timeout(600)
print("left")
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [(INTERRUPTED, "True 0 True"), (FORKED, "both"), (LEFT, "left")],
    ids=["signal handlers", "fork", "exit"],
)
def test_timers_stand_signal_handlers_a_fork_and_the_end_of_the_program(
    program: str, printed: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout.strip(), ended.stderr) == (printed, "")


# any


def test_any_is_aborted_with_the_reason_of_its_first_source() -> None:
    one, other = AbortSignal(), AbortSignal()
    either = AbortSignal.any([one, other])
    assert not either.aborted
    other.abort("other")
    one.abort("one")
    assert (either.aborted, either.reason) == (True, "other")
    with pytest.raises(AbortError) as caught:
        either.throw_if_aborted()
    assert caught.value.reason == "other"
    assert AbortSignal.any([one, other]).reason == "other"


def test_an_abort_of_any_itself_leaves_its_sources_alone() -> None:
    source = AbortSignal()
    either = AbortSignal.any([source])
    either.abort("mine")
    source.abort("later")
    assert either.reason == "mine"
    assert not AbortSignal.any([]).aborted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["x"], "takes AbortSignals, not str"),
        ([[]], "takes AbortSignals, not list"),
        ("x", "takes AbortSignals, not str"),
        ([AbortSignal(), None], "takes AbortSignals, not NoneType"),
        (None, "takes a list of AbortSignals, not NoneType"),
        (AbortSignal(), "not AbortSignal: put it into a list"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_what_any_cannot_follow_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        AbortSignal.any(given)


def test_callbacks_and_followers_of_followers_are_told_once() -> None:
    a, b, c = AbortSignal(), AbortSignal(), AbortSignal()
    inner = AbortSignal.any([a, b, a])
    outer = AbortSignal.any([inner, c, a])
    told: list[str] = []
    outer.on_abort(lambda: told.append("outer"))
    inner.on_abort(lambda: told.append("inner"))
    outer.on_abort(lambda: told.append("taken back"))()
    b.abort("b")
    a.abort("a")
    assert sorted(told) == ["inner", "outer"]
    assert outer.reason == inner.reason == "b"
    assert [each._followers for each in (a, b, c)] == [{}, {}, {}]
    outer.on_abort(lambda: told.append("late"))
    assert told[-1] == "late"


def test_any_lives_while_it_is_listened_to_and_no_longer() -> None:
    source = AbortSignal()
    told: list[str] = []
    AbortSignal.any([source]).on_abort(lambda: told.append("a"))
    gc.collect()
    assert len(source._followers) == 1
    source.abort()
    assert told == ["a"]
    assert not source._followers
    other = AbortSignal()
    either = AbortSignal.any([other])
    either.on_abort(lambda: None)()
    gone = weakref.ref(either)
    del either
    assert gone() is None
    assert not other._followers


async def test_waiting_for_any_ends_with_the_first_and_leaves_nothing() -> None:
    source = AbortSignal()
    task = asyncio.create_task(AbortSignal.any([source, AbortSignal.timeout(600)]).wait())
    await asyncio.sleep(0)
    source.abort("now")
    assert await task == "now"
    del task
    other = AbortSignal()
    task = asyncio.create_task(AbortSignal.any([other, AbortSignal.timeout(600)]).wait())
    await asyncio.sleep(0)
    assert other._followers
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not other._followers
    del task
    gc.collect()
    assert timers.pending() == 0


async def test_all_sockets_are_cut_before_any_callback_runs() -> None:
    app = AbortSignal()
    open_still: list[bool] = []
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        client = client_of(provider)
        signals = [app, AbortSignal.any([app]), AbortSignal.any([AbortSignal.any([app])])]
        streams = [client.streaming_response([QUESTION], signal=each) for each in signals]
        for stream in streams:
            await anext(stream)
        app.on_abort(lambda: open_still.extend(stream.aborted for stream in streams))
        app.abort("all")
        assert open_still == [True, True, True]
        for stream in streams:
            with pytest.raises(AbortError) as caught:
                await anext(stream)
            assert caught.value.reason == "all"


@pytest.mark.slow
async def test_ten_thousand_calls_with_any_leave_no_listener_and_no_timer() -> None:
    app = AbortSignal()
    kept: list[Any] = []
    with ScriptedProvider(complete("ok")) as provider:
        client = client_of(provider)
        for number in range(10_000):
            signal = AbortSignal.any([app, AbortSignal.timeout(600)])
            stream = client.streaming_response([QUESTION], signal=signal)
            await stream.message()
            if number % 100 == 0:
                kept.append(stream)
        assert not app._followers
        assert not app._listeners
        del signal, stream
        kept.clear()
        gc.collect()
        assert timers.pending() == 0


@pytest.mark.parametrize("where", ["same thread", "other thread"])
def test_coming_leaving_and_aborting_at_once_lose_nobody(where: str) -> None:
    """Whoever listens when the source aborts is told, however many come and go meanwhile."""
    for _ in range(60):
        source = AbortSignal()
        either = AbortSignal.any([source])
        told: list[int] = []
        enough = threading.Event()
        threads = [threading.Thread(target=come_and_go, args=(either, enough)) for _ in range(2)]
        threads.append(threading.Thread(target=either.on_abort, args=(partial(told.append, 1),)))
        if where == "other thread":
            threads.append(threading.Thread(target=source.abort))
        for thread in threads:
            thread.start()
        if where == "same thread":
            source.abort()
        enough.set()
        for thread in threads:
            thread.join()
        assert len(told) == 1
        assert not source._followers


def come_and_go(signal: AbortSignal, enough: threading.Event) -> None:
    while not enough.is_set():
        signal.on_abort(lambda: None)()
        time.sleep(0)


@pytest.mark.parametrize("aborted", [False, True])
def test_whoever_comes_while_the_last_one_leaves_is_told(aborted: bool) -> None:
    """Between the look that nobody listens and the leaving of the source, forced."""
    source = AbortSignal()
    told: list[str] = []
    either = AbortSignal.any([source])

    class Leaving(dict[int, AbortSignal]):
        def pop(self, key: int, *default: Any) -> Any:
            if not told:
                told.append("came")
                either._callbacks[object()] = lambda: told.append("was told")
                either._follow()  # what a thread does that comes now
                found = super().pop(key, *default)
                if aborted:
                    source.abort("meanwhile")  # nobody follows at this moment
                return found
            return super().pop(key, *default)

    source._followers = Leaving()
    either.on_abort(lambda: None)()
    assert told == (["came", "was told"] if aborted else ["came"])
    source.abort("now")
    assert told == ["came", "was told"]
    assert either.reason == ("meanwhile" if aborted else "now")
