"""`mmsp.sync`: what the asynchronous client hands out, for threads; and the thread that drives it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal as os_signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mmsp
import mmsp.sync
from mmsp import (
    ApiKeyRequiredError,
    ConcurrentCallError,
    IncompleteStreamError,
    MMSPError,
    ProviderStreamError,
    StreamAbortedError,
    Timeouts,
    UpstreamError,
    UpstreamTimeoutError,
)
from mmsp.abort_signal import AbortSignal
from mmsp.ending import Outcome
from mmsp.sync import Aborted, AutoLLMClient, Stream, TextStream, driver
from mmsp.sync.driver import Driver
from mmsp.testing import Answer, ScriptedProvider, chat, cut, gate, reset, say, stall
from tests.asking import QUESTION, complete, events_of, shown
from tests.asking import client_of as asynchronous_client_of
from tests.interruption_table import WIRES
from tests.sync_asking import client_of, elsewhere, handled, interrupt_main, rest

pytestmark = pytest.mark.usefixtures("own_driver")

TEN = [chat.text(str(number)) for number in range(10)]
SHOWN = [f"text.delta {number}" for number in range(10)]


# the same names


def public(kind: type, *, others: tuple[str, ...] = ()) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") or name in others}


def test_the_client_has_the_methods_of_the_asynchronous_one() -> None:
    ours, core = public(AutoLLMClient), public(mmsp.AutoLLMClient)
    assert ours - {"close"} == core - {"aclose"}
    assert ours & {"close", "aclose"} == {"close"}


def test_a_stream_has_the_methods_of_the_asynchronous_one() -> None:
    ours, core = public(Stream), public(mmsp.Stream)
    generator = {"aclose", "asend", "athrow", "close_now"}
    call = public(mmsp.Stream.__mro__[1])  # what sends requests, and is no reader's business
    assert ours - {"close", "abort"} == core - generator - call


def test_the_text_has_the_methods_of_the_asynchronous_one() -> None:
    assert public(TextStream) - {"close"} == public(mmsp.TextStream) - {"aclose"}


SAME = [
    *((AutoLLMClient, mmsp.AutoLLMClient, name) for name in public(AutoLLMClient)),
    *((Stream, mmsp.Stream, name) for name in public(Stream)),
    *((TextStream, mmsp.TextStream, name) for name in public(TextStream)),
    (AutoLLMClient, mmsp.AutoLLMClient, "__init__"),
]


@pytest.mark.parametrize(("ours", "core", "name"), SAME)
def test_arguments_and_results_are_those_of_the_asynchronous_one(
    ours: type, core: type, name: str
) -> None:
    mine, theirs = getattr(ours, name), getattr(core, "aclose" if name == "close" else name)
    assert bool(mine.__doc__) >= bool(theirs.__doc__)
    if isinstance(mine, property):
        mine, theirs = mine.fget, theirs.fget
    assert inspect.signature(mine) == inspect.signature(theirs)
    assert not inspect.iscoroutinefunction(mine)


@pytest.mark.parametrize(
    "words",
    ["import mmsp.sync", "from mmsp.sync import *", "import mmsp; mmsp.sync.AutoLLMClient"],
)
def test_importing_loads_no_http_stack_and_starts_no_thread(words: str) -> None:
    if "*" in words:
        words = "from mmsp.sync import AutoLLMClient, Aborted"
    probe = (
        f"import sys, threading\n{words}\n"
        "print(*sorted(sys.modules))\nassert threading.active_count() == 1"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(mmsp.__file__).parent.parent)}
    loaded = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "mmsp.sync" in loaded
    assert not {"asyncio", "ssl", "httptools", "mmsp.transport", "mmsp.stream"} & set(loaded)


def test_the_package_shows_its_names() -> None:
    assert "sync" in dir(mmsp)
    assert dir(mmsp.sync) == ["AbortSignal", "Aborted", "AutoLLMClient", "Stream", "TextStream"]
    assert all(getattr(mmsp.sync, name) for name in dir(mmsp.sync))
    assert mmsp.sync.AbortSignal is AbortSignal
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mmsp.sync.Nothing


def test_aborted_is_an_exception_with_a_reason() -> None:
    assert issubclass(Aborted, Exception)
    assert not issubclass(Aborted, MMSPError | asyncio.CancelledError)
    reason = {"any": "object"}
    assert Aborted(reason).reason is reason
    assert Aborted(reason).args == (reason,)
    assert (Aborted().reason, Aborted().args) == (None, ())


def test_what_is_no_stream_makes_none() -> None:
    with pytest.raises(TypeError, match="made by a client"):
        Stream(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made by a stream"):
        TextStream(None)  # type: ignore[arg-type]


def test_a_client_and_a_stream_are_shown_as_the_asynchronous_ones() -> None:
    with ScriptedProvider(complete()) as provider:
        client, core = client_of(provider), asynchronous_client_of(provider)
        assert repr(client) == repr(core)
        assert (client.model, client.client_type) == (core.model, core.client_type)
        assert repr(client.streaming_response([QUESTION])).endswith(", open>")


# the same answers


@pytest.mark.parametrize("client_type", WIRES)
@pytest.mark.parametrize("apart", [False, True])
def test_events_are_those_of_the_asynchronous_client(client_type: str, apart: bool) -> None:
    events = WIRES[client_type].answer("one two three four")
    answer = Answer(*map(say, events)) if apart else Answer(say(events))
    with ScriptedProvider(answer, answer) as provider:

        async def expected() -> list[str]:
            client = asynchronous_client_of(provider, client_type)
            return shown(await events_of(client.streaming_response([QUESTION])))

        client = client_of(provider, client_type)
        assert shown(list(client.streaming_response([QUESTION]))) == asyncio.run(expected())


def test_text_gives_the_text_alone() -> None:
    with ScriptedProvider(complete("All is well")) as provider:
        text = client_of(provider).streaming_response([QUESTION]).text()
        assert list(text) == ["All", " is", " well"]


def test_message_reads_to_the_end(tls: bool) -> None:
    with ScriptedProvider(complete("All is well"), tls=tls) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        message = stream.message()
        assert message["content_items"] == [{"type": "text.done", "text": "All is well"}]
        assert stream.usage == message.get("usage_metadata")
        assert stream.partial_message() == message
        assert stream.outcome == "finished"
        assert list(stream) == []


def test_message_after_some_events_is_the_whole_message() -> None:
    with ScriptedProvider(Answer(say(chat.answer("one two three")))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        next(stream)
        message = stream.message()
        assert message["content_items"] == [{"type": "text.done", "text": "one two three"}]
        assert list(stream) == []


def test_next_ready_hands_out_what_came_together() -> None:
    with ScriptedProvider(Answer(say(TEN), gate("end"), say(chat.answer("x")))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert shown([next(stream)]) == SHOWN[:1]
        assert shown(stream.next_ready()) == SHOWN[1:]
        provider.open("end")
        assert shown(stream.next_ready()) == ["text.delta x"]
        assert shown(stream.next_ready()) == ["text.done 0123456789x", "stop stop"]
        with pytest.raises(StopIteration):
            stream.next_ready()


def test_the_request_id_and_the_usage_are_the_providers() -> None:
    events = [chat.text("a"), chat.usage(prompt=7), chat.text("b")]
    answer = Answer(say(events), stall(), headers={"x-request-id": "req-7"})
    with (
        ScriptedProvider(answer) as provider,
        client_of(provider).streaming_response([QUESTION]) as stream,
    ):
        assert (stream.request_id, stream.usage) == (None, None)
        next(stream)
        next(stream)
        assert stream.request_id == "req-7"
        assert stream.usage is not None
        assert stream.usage["prompt_tokens"] == 7


def test_a_partial_message_is_what_has_arrived_also_while_a_thread_reads() -> None:
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        assert stream.partial_message() is None

        def look() -> None:
            provider.wait("stalled")
            rest()
            parts.append(stream.partial_message())
            looked = threading.Event()

            def on_the_loop() -> None:
                parts.append(stream.partial_message())
                looked.set()

            driver.current()._call(on_the_loop)
            assert looked.wait(5)
            stream.close()

        parts: list[Any] = []
        with elsewhere(look):
            assert shown(list(stream)) == SHOWN
        parts.append(stream.partial_message())
    said = [part["content_items"] for part in parts]
    assert said == [[{"type": "text.done", "text": "0123456789"}]] * 3


def test_a_conversation_is_recorded_and_can_be_changed() -> None:
    with ScriptedProvider(complete("a"), Answer(say(TEN), stall()), complete("b")) as provider:
        client = client_of(provider)
        lengths = [
            (event["event_type"], len(client.get_history()))
            for event in client.streaming_response_stateful(QUESTION)
        ]
        assert lengths == [("delta", 0), ("delta", 2), ("stop", 2)]
        with client.streaming_response_stateful(QUESTION) as stream:
            next(stream)
            with pytest.raises(ConcurrentCallError):
                next(client.streaming_response_stateful(QUESTION))
            for change in (client.clear_history, lambda: client.set_history([])):
                with pytest.raises(ConcurrentCallError):
                    change()
        client.streaming_response_stateful(QUESTION).message()
        history = client.get_history()
        assert [message["role"] for message in history] == ["user", "assistant"] * 2
        client.clear_history()
        client.set_history(history[:2])
        assert client.get_history() == history[:2]


def test_what_is_wrong_is_raised_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ApiKeyRequiredError):
        AutoLLMClient("m", client_type="openai-chat")
    with ScriptedProvider(complete()) as provider:
        with pytest.raises(mmsp.InvalidMessageError):
            client_of(provider).streaming_response([])
        with pytest.raises(TypeError):
            client_of(provider).streaming_response([QUESTION], signal=3)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            client_of(provider).list_models(3)  # type: ignore[arg-type]
        assert provider.connections == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer.error(400, "no"), UpstreamError),
        (Answer(say(chat.error("broken", 500))), ProviderStreamError),
        (Answer(reset()), IncompleteStreamError),
    ],
)
def test_errors_are_those_of_the_asynchronous_client(
    answer: Answer, error: type[MMSPError]
) -> None:
    with ScriptedProvider(answer) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        with pytest.raises(error) as caught:
            list(stream)
        assert stream.outcome == "failed"
        assert list(stream) == []
    del stream, caught


@pytest.mark.parametrize(
    ("end", "error"), [(cut(), IncompleteStreamError), (say(chat.error("x", 5)), MMSPError)]
)
def test_an_error_comes_after_what_had_arrived(end: Any, error: type[MMSPError]) -> None:
    with ScriptedProvider(Answer(say(TEN), end)) as provider:
        events = []
        with pytest.raises(error):
            for event in client_of(provider).streaming_response([QUESTION]):
                events.append(event)
        assert shown(events) == SHOWN


def test_a_time_out_ends_a_read() -> None:
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        client = client_of(provider, timeouts=Timeouts(idle=0.05))
        with pytest.raises(UpstreamTimeoutError):
            client.streaming_response([QUESTION]).message()


# The batches in which events are handed over decide nothing.

RICH = [
    chat.thinking("hm "),
    chat.text("Let me "),
    chat.text("look."),
    chat.tool_call(0, "c1", "find", '{"a":'),
    chat.tool_call(1, "c2", "find", '{"b":'),
    chat.tool_call(2, "c3", "find", '{"c":3}'),
    chat.arguments(0, "1}"),
    chat.arguments(1, "2}"),
    chat.finish("tool_calls"),
    chat.usage(),
    chat.done(),
]


@pytest.mark.parametrize("taken", range(1, 12))
def test_an_abort_at_each_event_leaves_what_it_leaves_on_a_loop(taken: int) -> None:
    async def on_a_loop() -> list[str]:
        stream = asynchronous_client_of(provider).streaming_response([QUESTION])
        events: list[Any] = []
        with pytest.raises(mmsp.AbortError):
            while True:
                events.append(await anext(stream))
                if len(events) == taken:
                    stream.abort()
        return shown(events)

    with ScriptedProvider(Answer(say(RICH), stall())) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        events: list[Any] = []
        with pytest.raises(Aborted):
            for event in stream:
                events.append(event)
                if len(events) == taken:
                    stream.abort()
                    client.clear_history()
        assert shown(events) == asyncio.run(on_a_loop())
        assert client.get_history() == []


def test_an_abort_between_the_last_done_and_the_stop_changes_nothing() -> None:
    with ScriptedProvider(complete("a")) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        assert shown([next(stream), next(stream)]) == ["text.delta a", "text.done a"]
        stream.abort()
        assert shown([next(stream)]) == ["stop stop"]
        assert len(client.get_history()) == 2
        assert not stream.aborted


def test_a_close_drops_what_was_handed_over_and_the_error() -> None:
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        for abort in (False, True):
            stream = client_of(provider).streaming_response([QUESTION])
            next(stream)
            if abort:
                stream.abort("why")
            stream.close()
            assert list(stream) == []
            assert stream.aborted is abort
            with pytest.raises(RuntimeError, match="before its message was whole"):
                stream.message()


# lists of models


MODELS = Answer.json({"data": [{"id": "one"}, {"id": "two"}]})


def test_models_are_listed() -> None:
    with ScriptedProvider(MODELS) as provider:
        assert client_of(provider).list_models() == ["one", "two"]
        signal = AbortSignal()
        assert client_of(provider).list_models(signal) == ["one", "two"]
        assert not signal._followers
        signal.abort()
        assert len(provider.requests) == 2


def test_a_list_of_models_that_is_aborted_closes_its_connection() -> None:
    signal = AbortSignal()
    with ScriptedProvider(Answer(head_gate="never")) as provider:

        def abort() -> None:
            provider.wait("stalled")
            signal.abort("why")

        with elsewhere(abort), pytest.raises(Aborted) as caught:
            client_of(provider).list_models(signal)
        assert caught.value.reason == "why"
        provider.connections[0].wait_closed(0.2)


def test_a_list_of_models_ends_with_its_client() -> None:
    with ScriptedProvider(Answer(head_gate="never")) as provider:
        client = client_of(provider)

        def close() -> None:
            provider.wait("stalled")
            client.close()

        with elsewhere(close), pytest.raises(StreamAbortedError):
            client.list_models()
        provider.connections[0].wait_closed(0.2)


def test_what_a_signal_handler_raises_ends_a_list_of_models() -> None:
    with ScriptedProvider(Answer(head_gate="never")) as provider:

        def interrupt() -> None:
            provider.wait("stalled")
            rest()
            interrupt_main()

        with handled(raise_interrupt), elsewhere(interrupt), pytest.raises(KeyboardInterrupt):
            client_of(provider).list_models()
        provider.connections[0].wait_closed(0.2)


def raise_interrupt() -> None:
    raise KeyboardInterrupt


# the hand-over


def test_events_are_handed_over_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    send = Driver.send

    def counted(self: Driver, errand: Any) -> None:
        sent.append(errand)
        send(self, errand)

    monkeypatch.setattr(Driver, "send", counted)
    events = chat.deltas(20_000)
    writes = [say(events[start:][:500]) for start in range(0, len(events), 500)]
    with ScriptedProvider(Answer(*writes, say(chat.answer("x")))) as provider:
        count = sum(1 for _ in client_of(provider).streaming_response([QUESTION]))
    assert count == 20_003
    assert len(sent) < 2_000


def test_a_reader_that_does_not_read_holds_back_the_provider() -> None:
    piece = chat.text("x" * 10_000)
    with ScriptedProvider(Answer(say([piece] * 3000), stall())) as provider:  # 30 MB
        stream = client_of(provider).streaming_response([QUESTION])
        next(stream)
        time.sleep(0.3)
        exchange = stream._core._exchange
        assert exchange is not None
        assert exchange._size < 2**20
        assert len(stream._events) <= 256
        assert provider.connections[0].bytes_sent < 20_000_000
        stream.close()


def test_a_second_reader_is_refused_and_the_first_unharmed() -> None:
    with ScriptedProvider(Answer(gate("go"), say(chat.text("a")), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])

        def read_too() -> None:
            provider.wait("stalled")
            rest()
            for read in (stream.__next__, stream.message, stream.next_ready):
                with pytest.raises(RuntimeError, match="one read at a time"):
                    read()
            provider.open("go")

        with elsewhere(read_too):
            assert shown([next(stream)]) == ["text.delta a"]
        stream.close()


def test_each_read_may_come_from_another_thread() -> None:
    with ScriptedProvider(complete("one two three")) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        events: list[Any] = []
        for _ in range(5):
            with elsewhere(lambda: events.append(next(stream))):
                pass
        assert shown(events)[-1] == "stop stop"


@pytest.mark.no_debug
def test_many_readers_at_once_get_every_event_once() -> None:
    writes = [
        say([chat.text(f"{first + each}") for each in range(10)]) for first in range(0, 5000, 10)
    ]
    with ScriptedProvider(Answer(*writes, say(chat.answer("x")))) as provider:
        stream = client_of(provider).streaming_response([QUESTION])

        def read(alone: bool) -> list[Any]:
            found: list[Any] = []
            while stream.outcome is None or stream._events:
                try:
                    found += [next(stream)] if alone else stream.next_ready()
                except RuntimeError:  # another one reads
                    time.sleep(0)
                except StopIteration:
                    break
            return found

        with ThreadPoolExecutor(4) as pool:
            found = [event for each in pool.map(read, [True, True, False, False]) for event in each]
        found += list(stream)
    texts = [line.removeprefix("text.delta ") for line in shown(found)]
    assert {str(number) for number in range(5000)} <= set(texts)
    assert len(texts) == 5003


@pytest.mark.parametrize("before", ["events", "an abort", "an error"])
def test_a_close_in_the_moment_of_the_hand_over_drops_what_comes(before: str) -> None:
    events = [*TEN, chat.error("broken", 500)] if before == "an error" else TEN
    with ScriptedProvider(Answer(say(events), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        if before != "events":
            next(stream)
            stream.next_ready()
        if before == "an abort":
            stream.abort("why")
        next_ready = stream._core.next_ready

        async def closed_meanwhile() -> list[Any]:
            try:
                return await next_ready()
            finally:
                stream._end(Outcome.CLOSED)

        stream._core.next_ready = closed_meanwhile  # type: ignore[method-assign]
        assert list(stream) == []
        with pytest.raises(StopIteration):
            next(stream)


def test_closing_the_text_closes_the_stream() -> None:
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        text = client_of(provider).streaming_response([QUESTION]).text()
        assert next(text) == "0"
        text.close()
        assert list(text) == []
        provider.connections[0].wait_closed(0.2)


def test_it_works_where_a_loop_runs() -> None:
    async def cell() -> list[str]:
        return list(client_of(provider).streaming_response([QUESTION]).text())

    with ScriptedProvider(complete("All is well")) as provider:
        assert asyncio.run(cell()) == ["All", " is", " well"]


@pytest.mark.no_debug
def test_two_hundred_threads_share_one_driver() -> None:
    with ScriptedProvider(complete("All is well")) as provider:
        client = client_of(provider)
        together = threading.Barrier(200)

        def ask(_: int) -> str:
            together.wait(30)
            return "".join(client.streaming_response([QUESTION]).text())

        with ThreadPoolExecutor(200) as pool:
            assert set(pool.map(ask, range(200))) == {"All is well"}
        assert [each.name for each in threading.enumerate()].count("mmsp-sync") == 1


@pytest.mark.no_debug
def test_two_hundred_threads_stop_at_once_with_one_signal() -> None:
    signal = AbortSignal()
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        client = client_of(provider)

        def ask(_: int) -> object:
            try:
                return client.streaming_response([QUESTION], signal=signal).message()
            except Aborted as stopped:
                return stopped.reason

        with ThreadPoolExecutor(200) as pool:
            answers = pool.map(ask, range(200))
            provider.wait("stalled", count=200, timeout=30)
            signal.abort("why")
            assert set(answers) == {"why"}
        for record in provider.connections:
            record.wait_closed()


# the thread that drives


def test_on_the_drivers_own_thread_waiting_is_refused() -> None:
    found: list[BaseException] = []

    def on_abort() -> None:
        waits: list[Callable[[], object]] = [stream.__next__, stream.message, other.__next__]
        for wait in (*waits, client.list_models):
            try:
                wait()
            except RuntimeError as error:
                found.append(error)
        other.close()
        done.set()

    done = threading.Event()
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        client = client_of(provider)
        signal = AbortSignal()
        signal.on_abort(on_abort)
        stream, other = (client.streaming_response([QUESTION]) for _ in range(2))
        next(other)
        driver.current()._call(signal.abort)
        assert done.wait(5)
        assert len(found) == 4
        assert all("the thread that it reads on" in str(error) for error in found)
        assert shown([next(stream)]) == ["text.delta a"]  # which the refusal has not ended
        assert other.outcome == "closed"
        stream.close()


def test_a_stream_that_the_drivers_thread_drops_closes_its_connection() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        streams = [client_of(provider).streaming_response([QUESTION])]
        next(streams[0])
        driver.current()._call(streams.clear)
        provider.connections[0].wait_closed()


def test_signals_are_for_other_threads() -> None:
    async def blocked() -> set[int]:
        return set(os_signal.pthread_sigmask(os_signal.SIG_BLOCK, []))

    mask = driver.current().do(blocked)
    assert {os_signal.SIGINT, os_signal.SIGTERM, os_signal.SIGUSR1, os_signal.SIGALRM} <= mask
    assert os_signal.SIGSEGV not in mask
    assert os_signal.SIGINT not in os_signal.pthread_sigmask(os_signal.SIG_BLOCK, [])


def test_without_a_thread_to_be_had_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread"):
                client.list_models()
        assert client.streaming_response([QUESTION]).message()


def test_a_start_that_is_interrupted_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        real(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            driver.current()
    give_up = time.monotonic() + 5
    while any(each.name == "mmsp-sync" for each in threading.enumerate()):
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_after_its_end_the_driver_takes_nothing_and_another_does() -> None:
    with ScriptedProvider(Answer(say(TEN), stall()), complete()) as provider:
        client = client_of(provider)
        stream = client.streaming_response([QUESTION])
        next(stream)
        driver.stop()
        driver.stop()
        provider.connections[0].wait_closed()
        assert shown([*(next(stream) for _ in range(9))]) == SHOWN[1:]
        with pytest.raises(RuntimeError, match="shutting down"):
            next(stream)
        stream.close()
        assert client.streaming_response([QUESTION]).message()


def test_a_driver_that_ended_by_itself_is_followed_by_another() -> None:
    with ScriptedProvider(complete()) as provider:
        first = driver.current()
        first._call(first._end.set)
        first._thread.join(10)
        assert client_of(provider).streaming_response([QUESTION]).message()
        assert driver.current() is not first


def test_a_signal_handler_that_reads_while_the_driver_starts_uses_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Driver.start
    found: list[Driver] = []

    def start(mine: Driver) -> None:
        begin(mine)
        monkeypatch.setattr(Driver, "start", begin)
        with handled(lambda: found.append(driver.current())):
            interrupt_main()
            while not found:
                rest()

    monkeypatch.setattr(Driver, "start", start)
    assert driver.current() is found[0]


def test_at_the_end_of_the_interpreter_no_driver_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_over", [])
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        client = client_of(provider)
        stream = client.streaming_response([QUESTION])
        next(stream)
        mmsp.sync._at_exit()
        provider.connections[0].wait_closed()
        for read in (client.streaming_response([QUESTION]).__next__, client.list_models):
            with pytest.raises(RuntimeError, match="shutting down"):
                read()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError, RuntimeError, Aborted])
def test_whatever_a_signal_handler_raises_ends_the_read_and_comes_out(
    kind: type[BaseException],
) -> None:
    """A `TimeoutError` of an alarm, say; also one of the kinds that a stream may end with."""
    error = kind("mine")

    def handler() -> None:
        raise error

    def interrupt() -> None:
        provider.wait("stalled")
        rest()
        interrupt_main()

    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        with handled(handler), elsewhere(interrupt), pytest.raises(kind) as caught:
            list(stream)
        assert caught.value is error
        assert (stream.outcome, stream.aborted, stream.reason) == ("cancelled", False, None)
        assert list(stream) == []
        provider.connections[0].wait_closed(0.2)


def test_the_callers_context_is_that_of_its_call() -> None:
    import contextvars

    caller = contextvars.ContextVar("caller", default="nobody")
    caller.set("me")

    async def who() -> str:
        return caller.get()

    assert driver.current().do(who) == "me"


# what is left


def test_a_dropped_client_and_stream_are_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        with ScriptedProvider(Answer(say(TEN), stall())) as provider:
            client = client_of(provider)
            stream = client.streaming_response([QUESTION])
            next(stream)
            gone: list[weakref.ref[Any]] = [
                weakref.ref(stream),
                weakref.ref(stream._core),
                weakref.ref(client),
            ]
            del stream
            assert [each() is None for each in gone] == [True, True, False]
            assert client._streams == {}
            provider.connections[0].wait_closed(0.2)
            del client
            assert gone[2]() is None
    finally:
        gc.enable()


def test_closing_the_client_closes_its_streams() -> None:
    with ScriptedProvider(Answer(say(TEN), stall())) as provider:
        with client_of(provider) as client:
            streams = [client.streaming_response([QUESTION]) for _ in range(3)]
            for stream in streams[:2]:
                next(stream)
        for record in provider.connections:
            record.wait_closed(0.2)
        assert [list(stream) for stream in streams] == [[], [], []]
        assert {stream.outcome for stream in streams} == {"closed"}
