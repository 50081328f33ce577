"""From a name to a connection: look-ups that stop for nobody, several addresses, TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmsp import AbortError, AutoLLMClient, Timeouts, UpstreamConnectionError, UpstreamTimeoutError
from mmsp.testing import Answer, ScriptedProvider, say, tls
from mmsp.transport import Exchange
from mmsp.transport import tls as transport_tls
from tests.asking import QUESTION, client_of, complete, events_of
from tests.calling import ask, failure_of

SOURCES = Path(__file__).parent.parent
Look = Callable[[str, int], list[Any]]


def client_at(url: str, **settings: Any) -> AutoLLMClient:
    return AutoLLMClient("some-model", "a-key", url, "openai-chat", **settings)


def address(port: int, host: str = "127.0.0.1") -> tuple[Any, ...]:
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


class Names:
    """What `getaddrinfo` says: each look-up is counted, and answered by `answer` when `told` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told = threading.Event()
        self.answer: Look = lambda host, port: [address(port)]

    def look_up(self, host: str, port: int, **_: object) -> list[Any]:
        self.asked.append(host)
        self.told.wait(6)
        return self.answer(host, port)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.told.set()


# look-ups


async def test_an_abort_does_not_wait_for_a_name(names: Names) -> None:
    with ScriptedProvider(complete()) as provider:
        stream = client_at(f"http://slow.test:{provider.port}/v1").streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        while not names.asked:
            await asyncio.sleep(0.001)
        before = time.monotonic()
        stream.abort("enough")
        with pytest.raises(AbortError) as caught:
            await reading
        assert time.monotonic() - before < 0.2
        assert caught.value.reason == "enough"
        names.told.set()
        await asyncio.sleep(0.05)
        assert provider.connections == []


def test_the_end_of_a_loop_does_not_wait_for_a_name(names: Names) -> None:
    async def main() -> None:
        stream = client_at("http://slow.test/v1").streaming_response([QUESTION])
        asyncio.get_running_loop().call_later(0.05, stream.abort)
        with pytest.raises(AbortError):
            await anext(stream)

    before = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - before < 0.5


def test_the_end_of_the_interpreter_does_not_wait_for_a_name() -> None:
    program = """
import asyncio, socket, time
from mmsp import AutoLLMClient, AbortError
socket.getaddrinfo = lambda *_, **__: time.sleep(60)
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no complaint
    client = AutoLLMClient("m", "a-key", "http://slow.test/v1", "openai-chat")
    question = {"role": "user", "content_items": [{"type": "text.done", "text": "hi"}]}
    stream = client.streaming_response([question])
    asyncio.get_running_loop().call_later(0.05, stream.abort)
    try:
        await anext(stream)
    except AbortError:
        print("aborted")
asyncio.run(main())
"""
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert time.monotonic() - before < 20
    assert (done.stdout, done.stderr) == ("aborted\n", "")


async def test_look_ups_of_one_name_at_once_are_one(names: Names) -> None:
    with ScriptedProvider(complete()) as provider:
        client = client_at(f"http://one.test:{provider.port}/v1")
        streams = [client.streaming_response([QUESTION]) for _ in range(5)]
        reading = [asyncio.create_task(events_of(stream)) for stream in streams]
        other = asyncio.create_task(ask(client_at(f"http://other.test:{provider.port}/v1")))
        while len(names.asked) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        streams[0].abort()  # its look-up is also that of the others
        names.told.set()
        ends = await asyncio.gather(*reading, other, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert [len(end) for end in ends[1:] if isinstance(end, list)] == [5] * 5
        assert sorted(names.asked) == ["one.test", "other.test"]


async def test_an_address_is_not_looked_up(names: Names) -> None:
    with ScriptedProvider(complete(), host="::1") as six, ScriptedProvider(complete()) as four:
        await ask(client_of(six))
        await ask(client_of(four))
    assert names.asked == []


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        UnicodeError("label too long"),
        RuntimeError("from a patched resolver"),
    ],
    ids=["unknown", "malformed", "unforeseen"],
)
async def test_a_name_that_leads_nowhere_is_told(names: Names, error: Exception) -> None:
    def fail(host: str, port: int) -> list[Any]:
        raise error

    names.answer = fail
    names.told.set()
    found, _ = await failure_of(client_at("http://no.test/v1", max_retries=0))
    assert isinstance(found, UpstreamConnectionError)
    assert isinstance(found, ConnectionError)
    assert (found.phase, found.retryable) == ("resolve", True)
    assert "no.test" in str(found)
    assert names.asked == ["no.test"]  # a failed look-up is not remembered
    await failure_of(client_at("http://no.test/v1", max_retries=0))
    assert names.asked == ["no.test"] * 2


# addresses


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.every_loop
async def test_a_refused_connection_is_told(closed_port: int) -> None:
    error, _ = await failure_of(client_at(f"http://127.0.0.1:{closed_port}/v1", max_retries=0))
    assert isinstance(error, UpstreamConnectionError)
    assert (error.phase, error.retryable) == ("connect", True)
    assert "refused" in str(error)
    assert error.__cause__ is None


@pytest.mark.every_loop
async def test_a_second_address_is_tried_when_the_first_refuses(
    names: Names, closed_port: int
) -> None:
    with ScriptedProvider(complete()) as provider:
        names.answer = lambda host, port: [address(closed_port), address(port)]
        names.told.set()
        client = client_at(f"http://two.test:{provider.port}/v1", max_retries=0)
        assert (await ask(client))[-1] == "stop stop"


@pytest.mark.every_loop
async def test_a_second_address_is_tried_when_the_first_is_silent(names: Names) -> None:
    with (
        ScriptedProvider(never_accept=True) as silent,
        ScriptedProvider(complete()) as provider,
    ):
        names.answer = lambda host, port: [address(silent.port), address(port)]
        names.told.set()
        before = time.monotonic()
        client = client_at(f"http://two.test:{provider.port}/v1", max_retries=0)
        assert (await ask(client))[-1] == "stop stop"
        assert 0.2 < time.monotonic() - before < 2
        assert silent.pending_connects() == 0  # the loser was closed


@pytest.mark.every_loop
async def test_an_abort_closes_every_address_that_is_being_tried(names: Names) -> None:
    with (
        ScriptedProvider(never_accept=True) as one,
        ScriptedProvider(never_accept=True) as two,
    ):
        names.answer = lambda host, port: [address(one.port), address(two.port)]
        names.told.set()
        stream = client_at("http://two.test/v1").streaming_response([QUESTION])
        reading = asyncio.create_task(stream.__anext__())
        while not (one.pending_connects() and two.pending_connects()):
            await asyncio.sleep(0.01)
        stream.abort()
        assert one.pending_connects() + two.pending_connects() == 0
        with pytest.raises(AbortError):
            await reading


# servers that leave at once


@pytest.mark.every_loop
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_server_that_closes_at_once_is_no_riddle(secure: bool) -> None:
    async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    scheme, port = "https" if secure else "http", server.sockets[0].getsockname()[1]
    client = client_at(f"{scheme}://127.0.0.1:{port}/v1", max_retries=0)
    for _ in range(30):
        error, _ = await asyncio.wait_for(failure_of(client), 2)
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase == ("tls" if secure else "head")
    server.close()


@pytest.mark.every_loop
async def test_a_server_that_closes_right_after_the_handshake_is_no_riddle() -> None:
    async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0, ssl=tls.server_context("127.0.0.1"))
    port = server.sockets[0].getsockname()[1]
    client = client_at(
        f"https://127.0.0.1:{port}/v1", max_retries=0, ssl_context=tls.client_context()
    )
    for _ in range(20):
        error, _ = await asyncio.wait_for(failure_of(client), 2)
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase in ("tls", "head")
    server.close()


@pytest.mark.every_loop
@pytest.mark.parametrize("abort", [False, True], ids=["by the server", "by an abort"])
async def test_a_connection_that_ends_before_it_is_handed_over_is_no_riddle(
    abort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Exchange._opened

    def late(exchange: Exchange, task: asyncio.Task[Any]) -> None:
        asyncio.get_running_loop().call_later(0.1, opened, exchange, task)

    monkeypatch.setattr(Exchange, "_opened", late)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if abort:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    stream = client_at(url, max_retries=0).streaming_response([QUESTION])
    if abort:
        asyncio.get_running_loop().call_later(0.05, stream.abort)
    before = time.monotonic()
    with pytest.raises((AbortError, UpstreamConnectionError)) as caught:
        await asyncio.wait_for(stream.__anext__(), 2)
    assert isinstance(caught.value, AbortError) == abort
    assert time.monotonic() - before < 1
    server.close()


# TLS


@pytest.mark.every_loop
async def test_a_certificate_of_an_unknown_authority_is_refused_at_once() -> None:
    with ScriptedProvider(complete(), tls=True) as provider:
        error, _ = await failure_of(client_at(provider.base_url, max_retries=2))
        assert isinstance(error, UpstreamConnectionError)
        assert (error.phase, error.retryable) == ("tls", False)
        assert "127.0.0.1" in str(error)
        assert "SSL_CERT_FILE" in str(error)
        assert len(provider.connections) == 1
        assert provider.requests == []


@pytest.mark.every_loop
async def test_a_certificate_of_another_host_is_refused_at_once() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.authority().issue_cert("other.test").configure_cert(context)
    handshakes: list[str] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(sock, server_side=True).close()
                handshakes.append("accepted")
            except OSError:
                handshakes.append("refused")
                sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        error, _ = await failure_of(client_at(url, max_retries=2, ssl_context=tls.client_context()))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert isinstance(error, UpstreamConnectionError)
    assert (error.phase, error.retryable) == ("tls", False)
    assert "127.0.0.1" in str(error)
    assert handshakes == ["refused"]


async def test_ssl_cert_file_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider(complete(), tls=True) as provider:
        client = client_at(provider.base_url)
        monkeypatch.setenv("SSL_CERT_FILE", provider.ca_file)
        assert (await ask(client))[-1] == "stop stop"


async def test_a_context_of_the_callers_own_is_used() -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with ScriptedProvider(complete(), tls=True) as provider:
        client = client_at(provider.base_url, ssl_context=context)
        assert (await ask(client))[-1] == "stop stop"


def test_the_default_context_is_made_once_and_checks_names() -> None:
    context = transport_tls.default_context()
    assert context is transport_tls.default_context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.every_loop
async def test_tls_to_a_server_without_it_is_told() -> None:
    with ScriptedProvider(complete()) as provider:
        url = provider.base_url.replace("http:", "https:")
        error, _ = await failure_of(client_at(url, max_retries=0))
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase == "tls"


@pytest.mark.every_loop
async def test_no_tls_to_a_server_with_it_is_told() -> None:
    with ScriptedProvider(complete(), tls=True) as provider:
        url = provider.base_url.replace("https:", "http:")
        error, _ = await failure_of(client_at(url, max_retries=0))
        assert isinstance(error, UpstreamConnectionError)
        assert error.phase == "head"


@pytest.mark.every_loop
@pytest.mark.parametrize(
    "options",
    [{"never_accept": True}, {"tls": True, "tls_hello": "ignore"}],
    ids=["TCP", "TLS hello"],
)
async def test_connecting_takes_no_longer_than_its_time_out(options: dict[str, Any]) -> None:
    with ScriptedProvider(Answer(say("")), **options) as provider:
        client = client_of(provider, timeouts=Timeouts(connect=0.1), max_retries=0)
        before = time.monotonic()
        error, _ = await failure_of(client)
        assert 0.1 <= time.monotonic() - before < 0.4
        assert isinstance(error, UpstreamTimeoutError)
        assert isinstance(error, TimeoutError)
        assert (error.phase, error.seconds) == ("connect", 0.1)
        assert provider.pending_connects() == 0


@pytest.mark.every_loop
async def test_the_time_to_connect_runs_from_the_look_up_on(names: Names) -> None:
    with ScriptedProvider(complete()) as provider:
        url = f"http://slow.test:{provider.port}/v1"
        before = time.monotonic()
        error, _ = await failure_of(client_at(url, timeouts=Timeouts(connect=0.1), max_retries=0))
        assert 0.1 <= time.monotonic() - before < 0.4
        assert isinstance(error, UpstreamTimeoutError)
        assert error.phase == "connect"
        assert provider.connections == []


@pytest.mark.every_loop
async def test_the_time_to_connect_is_for_the_look_up_and_the_handshake_together(
    names: Names,
) -> None:
    with ScriptedProvider(tls=True, tls_hello="ignore") as provider:
        asyncio.get_running_loop().call_later(0.3, names.told.set)
        client = client_at(
            f"https://slow.test:{provider.port}/v1",
            ssl_context=provider.ssl_context,
            timeouts=Timeouts(connect=0.5),
            max_retries=0,
        )
        before = time.monotonic()
        error, _ = await failure_of(client)
        assert 0.5 <= time.monotonic() - before < 0.79  # not 0.3 and 0.5
        assert isinstance(error, UpstreamTimeoutError)
        assert error.phase == "connect"
        await provider.connections[0].until_closed(0.2)


@pytest.mark.every_loop
async def test_each_attempt_has_its_own_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmsp.connector._FIRST_WAIT", 0.01)
    with ScriptedProvider(tls=True, tls_hello="ignore") as provider:
        client = client_of(provider, timeouts=Timeouts(connect=0.15), max_retries=2)
        before = time.monotonic()
        error, _ = await failure_of(client)
        assert 0.45 <= time.monotonic() - before < 0.9
        assert isinstance(error, UpstreamTimeoutError)
        assert (error.phase, error.seconds) == ("connect", 0.15)
        assert len(provider.connections) == 3
