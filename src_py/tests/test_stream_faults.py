"""What providers, programs and machines do that nobody planned: a stream still ends once, and cleanly."""

from __future__ import annotations

import asyncio
import gc
import gzip
import subprocess
import sys
import threading
import weakref

import pytest

from mmsp import (
    AbortError,
    MMSPError,
    ProviderStreamError,
    StreamProtocolError,
    Timeouts,
    UniConfig,
    UpstreamConnectionError,
    UpstreamError,
)
from mmsp.ending import Claim
from mmsp.testing import Answer, ScriptedProvider, Step, chat, pause, say, stall
from tests.asking import QUESTION, client_of, complete, shown

DEEP = '{"a":' * 900 + "1" + "}" * 900


async def test_arguments_nested_beyond_reading_are_a_typed_error_and_free_the_client() -> None:
    answer = Answer(
        say([chat.tool_call(0, "c", "f", DEEP), chat.finish("tool_calls"), chat.done()])
    )
    with ScriptedProvider(answer, complete()) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        with pytest.raises(MMSPError):
            await stream.message()
        assert stream.outcome == "failed"
        assert client.get_history() == []
        await client.streaming_response_stateful(QUESTION).message()


@pytest.mark.parametrize("frame", [b'{"foo":"\xff"}', b'{"foo":' + b"9" * 5000 + b"}"])
async def test_an_odd_frame_that_nobody_reads_breaks_nothing(frame: bytes) -> None:
    odd = b"data: " + frame + b"\n\n"
    with ScriptedProvider(Answer(say([odd, *chat.answer("a")]))) as provider:
        message = await client_of(provider).streaming_response([QUESTION]).message()
    assert message["content_items"] == [{"type": "text.done", "text": "a"}]


async def test_a_deeply_nested_error_body_is_an_upstream_error() -> None:
    answer = Answer(say(DEEP), status=400, framing="length")
    with ScriptedProvider(answer) as provider, pytest.raises(UpstreamError):
        await client_of(provider).streaming_response([QUESTION]).message()


async def test_a_fault_of_ours_in_the_commit_does_not_keep_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)

        def commit(_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(stream, "_commit", commit)
        with pytest.raises(MemoryError):
            await stream.message()
        client.clear_history()
        await client.streaming_response_stateful(QUESTION).message()


@pytest.mark.parametrize("cut_behind", range(1, 5))
async def test_after_an_abort_nothing_behind_a_fault_is_delivered_however_it_was_cut(
    cut_behind: int,
) -> None:
    frames = [chat.text("a"), chat.error("broken"), chat.text("after"), chat.text("!")]
    steps: list[Step] = [say(frames[:cut_behind])]
    if frames[cut_behind:]:
        steps += [pause(0.01), say(frames[cut_behind:])]
    with ScriptedProvider(Answer(*steps, stall())) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        events = [await anext(stream)]
        await provider.until("stalled")
        await asyncio.sleep(0.02)
        stream.abort("why")
        with pytest.raises(AbortError):
            while True:
                events.append(await anext(stream))
    assert shown(events) == ["text.delta a"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer.json({"error": {"message": "bad key a-key", "code": "a-key", "type": "a-key"}}),
        Answer(say("<html>a-key</html>")),
        Answer(say(chat.error("bad key a-key", "a-key", "a-key"))),
        Answer(say(b"data: what a-key\n\n")),
        Answer.error(400, "bad key a-key", headers={"x-request-id": "a-key"}),
    ],
)
async def test_a_key_that_the_provider_repeats_is_masked_everywhere(answer: Answer) -> None:
    with ScriptedProvider(answer) as provider, pytest.raises(MMSPError) as caught:
        await client_of(provider).streaming_response([QUESTION]).message()
    assert "a-key" not in f"{caught.value!r} {caught.value} {vars(caught.value)}"


async def test_usage_that_waits_in_the_socket_is_read_however_long_the_caller_was_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.1)
    answer = Answer(
        say([chat.text("a"), chat.finish()]), pause(0.05), say([chat.usage(prompt=7), chat.done()])
    )
    with ScriptedProvider(answer) as provider:
        stream = client_of(provider).streaming_response([QUESTION])
        await anext(stream)
        blocked = threading.Event()
        blocked.wait(0.3)  # the loop is blocked
        message = await stream.message()
        usage = message.get("usage_metadata")
        assert usage is not None
        assert usage["prompt_tokens"] == 7


async def test_heartbeats_after_the_finish_reason_do_not_hold_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mmsp.silence._QUIET", 0.1)
    beats: list[Step] = [
        step for _ in range(100) for step in (say("data: : keepalive\n\n"), pause(0.03))
    ]
    with ScriptedProvider(Answer(say([chat.text("a"), chat.finish()]), *beats)) as provider:
        async with asyncio.timeout(1):
            await client_of(provider).streaming_response([QUESTION]).message()


async def test_a_look_up_that_gets_no_thread_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider(complete(), host="localhost") as provider:
        client = client_of(provider, max_retries=0, timeouts=Timeouts(connect=2))
        with monkeypatch.context() as patch:

            def start(self: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(UpstreamConnectionError) as caught:
                await client.streaming_response([QUESTION]).message()
            assert caught.value.phase == "resolve"
        await client.streaming_response([QUESTION]).message()


async def test_a_stream_that_was_aborted_is_freed_without_the_collector() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        gc.collect()
        gc.disable()
        try:
            stream = client_of(provider).streaming_response([QUESTION])
            await anext(stream)
            stream.abort("why")
            with pytest.raises(AbortError):
                await anext(stream)
            gone = weakref.ref(stream)
            del stream
            assert gone() is None
        finally:
            gc.enable()


def test_a_stream_closed_on_another_loop_closes_and_does_not_spin() -> None:
    with ScriptedProvider(Answer(say(chat.text("a")), stall())) as provider:
        first = asyncio.new_event_loop()
        stream = client_of(provider).streaming_response([QUESTION])
        try:
            first.run_until_complete(anext(stream))

            async def elsewhere() -> None:
                with pytest.raises(RuntimeError, match="another event loop"):
                    await anext(stream)
                await stream.aclose()

            asyncio.run(asyncio.wait_for(elsewhere(), 2))
            provider.connections[0].wait_closed(0.2)
        finally:
            first.run_until_complete(asyncio.sleep(0.01))
            first.run_until_complete(first.shutdown_asyncgens())
            first.close()


async def test_a_stop_that_lands_while_the_claim_is_taken_frees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_of(provider)
        stream = client.streaming_response_stateful(QUESTION)
        take = Claim.take

        def take_and_be_stopped(self: Claim) -> bool:
            taken = take(self)
            stream.abort("now")
            return taken

        with monkeypatch.context() as patch:
            patch.setattr(Claim, "take", take_and_be_stopped)
            with pytest.raises(AbortError):
                await anext(stream)
        client.clear_history()
        await client.streaming_response_stateful(QUESTION).message()


async def test_a_stateful_call_keeps_the_config_it_was_given() -> None:
    with ScriptedProvider(complete()) as provider:
        config: UniConfig = {"max_tokens": 5}
        stream = client_of(provider).streaming_response_stateful(QUESTION, config)
        config["max_tokens"] = 9
        await stream.message()
        assert provider.requests[0].json()["max_completion_tokens"] == 5


FORKING = """
import asyncio, os, sys
from tests.asking import QUESTION, client_of, complete
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall

loop = asyncio.new_event_loop()
with ScriptedProvider(complete(), Answer(say(chat.text("a")), stall()), complete()) as provider:
    client = client_of(provider)
    loop.run_until_complete(client.streaming_response([QUESTION]).message())
    stream = client.streaming_response([QUESTION])
    loop.run_until_complete(anext(stream))
    child = os.fork()
    if not child:
        del stream
        sys.exit(0)
    os.waitpid(child, 0)
    async def still_open():
        await asyncio.sleep(0.05)
        assert provider.connections[-1].closed_ns is None
        await stream.aclose()
        await client.streaming_response([QUESTION]).message()
    loop.run_until_complete(asyncio.wait_for(still_open(), 5))
    loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
print("well")
"""


def test_a_forked_child_ends_nothing_of_its_parents() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PYTHONPATH": ":".join(each for each in sys.path if each)},
    )
    assert done.stdout.strip() == "well", done.stderr


async def test_gzip_in_several_members_is_read_to_its_end() -> None:
    members = [gzip.compress(each) for each in chat.answer("All is well")]
    answer = Answer(say(members), headers={"content-encoding": "gzip"})
    with ScriptedProvider(answer) as provider:
        message = await client_of(provider).streaming_response([QUESTION]).message()
    assert message["content_items"] == [{"type": "text.done", "text": "All is well"}]


async def test_an_unreadable_answer_is_a_protocol_error() -> None:
    with ScriptedProvider(Answer(say(b"data: {]\n\n"), stall())) as provider:
        with pytest.raises((StreamProtocolError, ProviderStreamError)):
            await client_of(provider).streaming_response([QUESTION]).message()
        await provider.connections[0].until_closed(0.2)
