"""`AbortSignal` by itself: who comes first, who is told, and what may interrupt it."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import QUESTION, client_of, complete


def test_the_first_abort_wins() -> None:
    reason = object()
    switch = AbortSignal()
    assert (switch.aborted, switch.reason) == (False, None)
    switch.abort(reason)
    switch.abort("later")
    assert switch.aborted
    assert switch.reason is reason


def test_of_many_threads_one_abort_wins_and_each_listener_is_told_once() -> None:
    for _ in range(50):
        switch = AbortSignal()
        told: list[int] = []
        for number in range(20):
            switch.on_abort(partial(told.append, number))
        barrier = threading.Barrier(8)

        def abort(number: int, switch: AbortSignal = switch, barrier: Any = barrier) -> None:
            barrier.wait()
            switch.abort(number)

        threads = [threading.Thread(target=abort, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(told) == list(range(20))
        assert switch.reason in range(8)


def test_the_error_carries_the_very_reason() -> None:
    reason = {"a": 1}
    switch = AbortSignal()
    switch.throw_if_aborted()
    switch.abort(reason)
    with pytest.raises(AbortError) as caught:
        switch.throw_if_aborted()
    assert caught.value.reason is reason
    assert caught.value.args == (reason,)
    assert isinstance(caught.value, asyncio.CancelledError)


def test_without_a_reason_the_error_has_no_arguments() -> None:
    switch = AbortSignal()
    switch.abort()
    with pytest.raises(AbortError) as caught:
        switch.throw_if_aborted()
    assert caught.value.args == ()
    assert caught.value.reason is None


def test_callbacks_run_once_in_order_and_not_after_they_were_taken_back() -> None:
    told: list[str] = []
    switch = AbortSignal()
    switch.on_abort(lambda: told.append("first"))
    take_back = switch.on_abort(lambda: told.append("never"))
    switch.on_abort(lambda: told.append("second"))
    take_back()
    take_back()
    switch.abort()
    switch.abort()
    assert told == ["first", "second"]
    assert not switch._callbacks


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    told: list[bool] = []
    switch = AbortSignal()
    switch.abort()
    switch.on_abort(lambda: told.append(True))()
    assert told == [True]


def test_what_a_callback_raises_goes_to_the_unraisable_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(args.exc_value))
    told: list[bool] = []
    errors = [KeyError("mine"), AbortError("x"), SystemExit(3)]
    switch = AbortSignal()

    def fail(error: BaseException) -> None:
        raise error

    for error in errors:
        switch.on_abort(partial(fail, error))
    switch.on_abort(lambda: told.append(True))
    switch.abort()
    gc.collect()
    assert seen == errors
    assert told == [True]


def test_a_callback_may_use_the_signal_that_calls_it() -> None:
    told: list[Any] = []
    switch = AbortSignal()

    def callback() -> None:
        switch.abort("again")
        switch.on_abort(lambda: told.append("nested"))
        told.append(switch.reason)

    switch.on_abort(callback)
    switch.abort("once")
    assert told == ["nested", "once"]


async def test_wait_gives_the_reason() -> None:
    switch = AbortSignal()
    asyncio.get_running_loop().call_later(0.01, switch.abort, "why")
    assert await switch.wait() == "why"
    assert await switch.wait() == "why"
    assert not switch._callbacks


async def test_wait_wakes_at_once_for_an_abort_from_a_thread() -> None:
    switch = AbortSignal()
    at: list[float] = []

    def abort() -> None:
        time.sleep(0.02)
        at.append(time.monotonic())
        switch.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    await switch.wait()
    assert time.monotonic() - at[0] < 0.2
    thread.join()


async def test_a_cancelled_wait_leaves_no_listener() -> None:
    switch = AbortSignal()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await switch.wait()
    assert not switch._callbacks
    switch.abort()


def test_abort_after_the_waiting_loop_was_closed_is_quiet() -> None:
    switch = AbortSignal()
    loop = asyncio.new_event_loop()
    waiting = switch.wait()

    async def begin() -> None:
        waiting.send(None)

    loop.run_until_complete(begin())
    loop.close()
    assert switch._callbacks  # it waits still, on a loop that is no more
    switch.abort()
    assert not switch._callbacks
    waiting.close()


def test_its_repr_shows_no_reason() -> None:
    switch = AbortSignal()
    assert repr(switch) == "<AbortSignal open>"
    switch.abort("sk-secret")
    assert "secret" not in repr(switch)


async def test_a_signal_keeps_no_stream_alive() -> None:
    switch = AbortSignal()
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION], signal=switch)
        await anext(stream)
        gone = weakref.ref(stream)
        del stream
        assert gone() is None
        assert not switch._listeners
        await provider.connections[0].until_closed(0.2)
    switch.abort()


@pytest.mark.slow
async def test_ten_thousand_finished_calls_leave_no_listener_and_no_timer() -> None:
    switch = AbortSignal()
    with ScriptedProvider(complete("ok")) as provider:
        client = client_of(provider)
        for _ in range(10_000):
            await client.streaming_response([QUESTION], signal=switch).message()
        assert not switch._listeners
        assert len(provider.connections) == 1
    loop: Any = asyncio.get_running_loop()
    assert len(loop._scheduled) < 200
    switch.abort("later")


async def test_one_signal_stops_streams_of_several_loops_and_threads() -> None:
    switch = AbortSignal()
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        reasons: list[Any] = []

        async def read() -> None:
            try:
                await client_of(provider).streaming_response([QUESTION], signal=switch).message()
            except AbortError as error:
                reasons.append(error.reason)

        threads = [threading.Thread(target=asyncio.run, args=(read(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        await provider.until("stalled", count=4)
        started = time.monotonic_ns()
        switch.abort("all")
        for record in provider.connections:
            assert await record.until_closed(1) - started < 2e8
        for thread in threads:
            thread.join()
        assert reasons == ["all"] * 4


INTERRUPTED = """
import faulthandler, gc, random, signal, sys, threading, time
from mmsp import AbortSignal
faulthandler.dump_traceback_later(50, exit=True)

class Listener:
    def __init__(self): self.told = 0
    def signal_cut(self, reason): self.told += 1; return True
    def signal_settle(self): pass

switch = AbortSignal()
fired = 0
def handler(*_):
    global fired, switch
    fired += 1
    aborted, switch = switch, AbortSignal()
    aborted.on_abort(lambda: None)
    aborted.abort(fired)
signal.signal(signal.SIGALRM, handler)
random.seed(7)
lost = 0
while fired < 10_000:
    before = fired
    listener, mine, told = Listener(), switch, []
    signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-6, 60e-6))
    deadline = time.monotonic() + 0.0005
    while fired == before and time.monotonic() < deadline:
        mine._listen(listener)
        take_back = mine.on_abort(lambda: told.append(1))
        if mine.aborted and not listener.told:
            lost += 1
        mine._forget(listener)
        take_back()
    assert len(told) <= 1 and listener.told <= 1
    if fired == before:
        signal.setitimer(signal.ITIMER_REAL, 0)
print(fired, lost)
"""


@pytest.mark.slow
def test_ten_thousand_alarms_into_subscribe_and_unsubscribe_hang_nothing_and_lose_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    fired, lost = map(int, done.stdout.split())
    assert fired >= 10_000
    assert lost == 0


async def test_an_abort_in_a_signal_handler_wakes_a_loop_that_sleeps() -> None:
    switch = AbortSignal()
    before = signal.signal(signal.SIGUSR1, lambda *_: switch.abort("signal"))
    try:
        with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
            stream = client_of(provider).streaming_response([QUESTION], signal=switch)
            task = asyncio.create_task(stream.message())
            await provider.until("stalled")
            timer = threading.Timer(
                0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)
            )
            timer.start()
            started = time.monotonic()
            with pytest.raises(AbortError):
                await task
            assert time.monotonic() - started < 0.25
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_no_signal_is_refused_at_the_call() -> None:
    client = AutoLLMClient("m", "a-key", client_type="openai-chat")
    for make, given in (
        (client.streaming_response, [QUESTION]),
        (client.streaming_response_stateful, QUESTION),
    ):
        call: Any = make
        with pytest.raises(TypeError, match=r"signal is an mmsp\.AbortSignal, not Event"):
            call(given, None, asyncio.Event())
