"""The scripted provider against plain sockets and `ssl`: no client of ours takes part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from mmsp.testing import (
    Answer,
    ConnectionRecord,
    ProviderProcess,
    ScriptedProvider,
    Step,
    chat,
    cut,
    drip,
    gate,
    pause,
    reset,
    say,
    stall,
)
from mmsp.testing.as_json import answer_from_json, answer_to_json
from mmsp.testing.play import play
from mmsp.testing.waiting import Bell

Reachable = ScriptedProvider | ProviderProcess

HELLO = chat.text("Hel")
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
BIG_BODY = b"x" * 8_000_000
A_MOMENT = 0.05


class Caller:
    """The far side: a blocking socket that speaks just enough HTTP."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.read = b""

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def ask(
        self, body: bytes = b"{}", *headers: str, target: str = "/v1/chat/completions"
    ) -> Caller:
        lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)
        return self

    def until(self, mark: bytes) -> bytes:
        """Read up to and with `mark`; what came behind it stays for the next call."""
        while mark not in self.read:
            data = self.sock.recv(65536)
            assert data, f"the connection ended after {self.read!r}"
            self.read += data
        found, _, self.read = self.read.partition(mark)
        return found + mark

    def rest(self) -> bytes:
        """Read to the end of the connection."""
        while data := self.sock.recv(65536):
            self.read += data
        found, self.read = self.read, b""
        return found

    def silent(self) -> bool:
        return not select.select([self.sock], [], [], A_MOMENT)[0]

    def fin(self) -> None:
        self.sock.close()

    def rst(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        self.sock.close()

    def wrap(self, context: ssl.SSLContext, name: str) -> Caller:
        self.sock = context.wrap_socket(self.sock, server_hostname=name, suppress_ragged_eofs=False)
        return self


def address(provider: Reachable) -> tuple[str, int]:
    return "127.0.0.1", int(provider.proxy_url.rpartition(":")[2])


def call(provider: Reachable) -> Caller:
    """Connect, over TLS if that is what the provider speaks."""
    caller = Caller(socket.create_connection(address(provider), timeout=5))
    if provider.base_url.startswith("https:"):
        caller.wrap(provider.ssl_context, "127.0.0.1")
    return caller


def tunnel(provider: ScriptedProvider, target: str, *headers: str) -> Caller:
    caller = Caller(socket.create_connection(address(provider), timeout=5))
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *headers]
    caller.send("\r\n".join([*lines, "", ""]).encode())
    return caller


def hello(name: str = "x") -> bytes:
    """The first bytes a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def the(provider: ScriptedProvider) -> ConnectionRecord:
    provider.wait("accepted")  # the kernel lets a caller in before the provider knows
    (record,) = provider.connections
    return record


def body_of(*steps: Step, **how: object) -> bytes:
    """All that an answer with `Connection: close` puts on the wire, to its end."""
    answer = Answer(*steps, keep_alive=False, **how)  # type: ignore[arg-type]
    with ScriptedProvider(answer) as provider, call(provider) as caller:
        return caller.ask().rest()


@pytest.fixture(params=["fin", "rst"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def leave(caller: Caller, how: str) -> int:
    """Close as `how` says; return the moment before."""
    before = time.monotonic_ns()
    caller.fin() if how == "fin" else caller.rst()
    return before


def seen(record: ConnectionRecord, how: str, before: int) -> None:
    """The record tells the end, its kind and its time."""
    closed_ns = record.wait_closed()
    assert record.closed_by == how
    assert before <= closed_ns <= before + 100_000_000
    assert (record.reset_ns is not None) == (how == "rst")
    assert record.state == "closed"


# --- how the far side closes


def test_a_fin_and_a_reset_in_mid_stream_are_told_apart(tls: bool, how: str) -> None:
    with (
        ScriptedProvider(Answer(say(HELLO), stall()), tls=tls) as provider,
        call(provider) as caller,
    ):
        caller.ask().until(HELLO)
        provider.wait("stalled")
        before = leave(caller, how)
        seen(the(provider), how, before)


def test_the_end_is_seen_behind_connect(how: str) -> None:
    with (
        ScriptedProvider(Answer(say(HELLO), stall())) as provider,
        tunnel(provider, "api.example.com:443") as caller,
    ):
        caller.until(b"\r\n\r\n")
        caller.wrap(provider.ssl_context, "api.example.com")
        caller.ask().until(HELLO)
        provider.wait("stalled")
        before = leave(caller, how)
        seen(the(provider), how, before)
        assert the(provider).connect_target == "api.example.com:443"


def test_the_end_is_seen_before_a_byte_was_sent(tls: bool, how: str) -> None:
    with ScriptedProvider(tls=tls) as provider:
        caller = Caller(socket.create_connection(address(provider)))
        provider.wait("accepted")
        before = leave(caller, how)
        seen(the(provider), how, before)
        assert list(the(provider).since) == ["accepted", "closed"]


def test_the_end_is_seen_in_an_unanswered_tls_hello(how: str) -> None:
    with (
        ScriptedProvider(tls=True, tls_hello="ignore") as provider,
        Caller(socket.create_connection(address(provider))) as caller,
    ):
        caller.send(hello())
        provider.wait("tls")
        assert caller.silent()
        before = leave(caller, how)
        seen(the(provider), how, before)


def test_the_end_is_seen_in_an_unanswered_connect(how: str) -> None:
    with (
        ScriptedProvider(connect="ignore") as provider,
        tunnel(provider, "api.example.com:443") as caller,
    ):
        provider.wait("connect")
        assert caller.silent()
        before = leave(caller, how)
        seen(the(provider), how, before)


def test_the_end_is_seen_in_an_unanswered_tls_hello_behind_connect(how: str) -> None:
    with (
        ScriptedProvider(tunnel_tls="ignore") as provider,
        tunnel(provider, "api.example.com:443") as caller,
    ):
        caller.until(b"\r\n\r\n")
        caller.send(hello("api.example.com"))
        provider.wait("tunnel_tls")
        assert caller.silent()
        before = leave(caller, how)
        seen(the(provider), how, before)


def test_a_reset_is_seen_while_nothing_of_a_big_body_is_read(tls: bool) -> None:
    with (
        ScriptedProvider(tls=tls, read_body=False) as provider,
        call(provider) as caller,
    ):
        caller.sock.settimeout(A_MOMENT)
        with pytest.raises(TimeoutError):
            caller.ask(BIG_BODY)
        provider.wait("body")
        assert the(provider).bytes_received < 20_000
        before = leave(caller, "rst")
        seen(the(provider), "rst", before)


def test_a_fin_is_seen_while_nothing_of_a_body_is_read() -> None:
    with (
        ScriptedProvider(read_body=False) as provider,
        call(provider) as caller,
    ):
        caller.ask(b"x" * 500)
        provider.wait("body")
        before = leave(caller, "fin")
        seen(the(provider), "fin", before)
        assert [request.body for request in provider.requests] == [b""]


def test_a_close_notify_is_no_end() -> None:
    with (
        ScriptedProvider(Answer(say(HELLO), gate("go"), say(HELLO)), tls=True) as provider,
        call(provider) as caller,
    ):
        caller.ask().until(HELLO)
        caller.sock.setblocking(False)
        received = the(provider).bytes_received
        with pytest.raises(ssl.SSLWantReadError):
            caller.sock.unwrap()  # type: ignore[attr-defined]
        provider.wait(lambda p: the(p).bytes_received > received or the(p).closed_ns)
        assert the(provider).state == "stalled"
        sent = the(provider).bytes_sent
        provider.open("go")
        provider.wait(lambda p: the(p).bytes_sent > sent)


def test_a_reset_that_follows_a_fin_counts_as_a_fin() -> None:
    with (
        ScriptedProvider(Answer(stall()), ignore_eof=True) as provider,
        call(provider) as caller,
    ):
        caller.ask()
        provider.wait("stalled")
        caller.sock.shutdown(socket.SHUT_WR)
        closed_ns = the(provider).wait_closed()
        assert the(provider).reset_ns is None
        caller.rst()
        provider.wait(lambda p: the(p).reset_ns)
        assert (the(provider).closed_by, the(provider).closed_ns) == ("fin", closed_ns)


def test_a_provider_that_ignores_eof_writes_on_until_it_is_reset() -> None:
    answer = Answer(say(HELLO), gate("go"), *(say(HELLO), pause(0.001)) * 1000)
    with ScriptedProvider(answer, ignore_eof=True) as provider:
        with call(provider) as caller:
            caller.ask().until(HELLO)
            caller.sock.shutdown(socket.SHUT_WR)
            the(provider).wait_closed()
            provider.open("go")
            caller.until(HELLO)
        provider.wait(lambda p: the(p).reset_ns)


def test_without_that_a_half_close_ends_the_connection() -> None:
    with ScriptedProvider(Answer(say(HELLO), stall())) as provider, call(provider) as caller:
        caller.ask().until(HELLO)
        caller.sock.shutdown(socket.SHUT_WR)
        assert caller.rest() == b"\r\n"
        assert the(provider).closed_by == "fin"


def test_a_request_that_came_with_the_end_is_recorded() -> None:
    with ScriptedProvider() as provider:
        with call(provider) as caller:
            caller.ask(b'{"a":1}')
        provider.wait("closed")
        assert [request.json() for request in provider.requests] == [{"a": 1}]


def test_a_connect_that_is_never_accepted_stays_pending() -> None:
    with ScriptedProvider(never_accept=True) as provider:
        sock = socket.socket()
        sock.settimeout(A_MOMENT)
        with pytest.raises(TimeoutError):
            sock.connect(address(provider))
        assert provider.pending_connects() == 1
        sock.close()
        assert provider.pending_connects() == 0
        assert provider.connections == []


# --- what it sends


def test_each_say_is_one_chunk_and_a_list_is_one_too() -> None:
    wire = body_of(say("one"), say([b"two", "three"]))
    assert wire.endswith(b"\r\n\r\n3\r\none\r\n8\r\ntwothree\r\n0\r\n\r\n")
    assert b"content-type: text/event-stream\r\n" in wire


def test_an_answer_has_the_length_it_announces() -> None:
    wire = body_of(say("one"), drip("two", 1, 0), framing="length")
    assert b"content-length: 6\r\n" in wire
    assert wire.endswith(b"\r\n\r\nonetwo")


def test_a_body_without_framing_ends_with_the_connection() -> None:
    wire = body_of(say("one"), framing="close")
    assert b"content-length" not in wire
    assert b"chunked" not in wire
    assert wire.endswith(b"\r\n\r\none")


def test_a_short_body_announces_more_than_it_sends() -> None:
    wire = body_of(say("one"), framing="short")
    assert b"content-length: 1003\r\n" in wire
    assert wire.endswith(b"\r\n\r\none")


def test_a_cut_ends_the_connection_in_mid_body_without_close_notify(tls: bool) -> None:
    with ScriptedProvider(Answer(say("one"), cut()), tls=tls) as provider:
        with call(provider) as caller:
            caller.ask().until(b"one\r\n")
            if tls:
                with pytest.raises(ssl.SSLEOFError):
                    caller.rest()
            else:
                assert caller.rest() == b""
        the(provider).wait_closed()
        assert the(provider).closed_by is None


def test_a_reset_is_felt_as_one(tls: bool) -> None:
    with ScriptedProvider(Answer(say("one"), gate("go"), reset()), tls=tls) as provider:
        with call(provider) as caller:
            caller.ask().until(b"one\r\n")
            with socket.socket(fileno=os.dup(caller.sock.fileno())) as below_tls:
                below_tls.settimeout(5)
                provider.open("go")
                with pytest.raises(ConnectionResetError):
                    below_tls.recv(1)
        assert the(provider).closed_by is None


def test_a_drip_comes_in_pieces_with_time_between_them() -> None:
    with ScriptedProvider(Answer(drip("abcde", 2, 0.02))) as provider, call(provider) as caller:
        begun = time.monotonic()
        wire = caller.ask().until(b"0\r\n\r\n")
        assert time.monotonic() - begun >= 0.04
        assert wire.endswith(b"2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n")


def test_a_gate_holds_back_what_follows_until_it_is_opened() -> None:
    with (
        ScriptedProvider(Answer(say("one"), gate("go"), say("two"))) as provider,
        call(provider) as first,
        call(provider) as second,
    ):
        first.ask().until(b"one")
        second.ask().until(b"one\r\n")
        provider.wait("stalled", count=2)
        assert second.silent()
        provider.open("go")
        first.until(b"two\r\n0\r\n\r\n")
        second.until(b"two\r\n0\r\n\r\n")
        first.ask().until(b"two\r\n0\r\n\r\n")


def test_the_head_can_be_late_and_can_wait_for_a_gate() -> None:
    late = Answer(say("one"), head_delay=0.03, interim=(103,))
    gated = Answer(say("two"), head_gate="go")
    with ScriptedProvider(late, gated) as provider, call(provider) as caller:
        begun = time.monotonic()
        assert caller.ask().until(b"\r\n\r\n") == b"HTTP/1.1 103 Early Hints\r\n\r\n"
        caller.until(b"HTTP/1.1 200 OK\r\n")
        assert time.monotonic() - begun >= 0.03
        caller.until(b"0\r\n\r\n")
        caller.ask()
        provider.wait("stalled")
        assert caller.silent()
        provider.open("go")
        caller.until(b"two")


def test_statuses_headers_and_whole_bodies() -> None:
    with (
        ScriptedProvider(
            Answer.error(429, "slow down", "rate_limit", {"retry-after": "2"}),
            Answer.json(chat.completion("Hi there"), headers=[("x-a", "1"), ("x-a", "2")]),
            Answer(status=599),
        ) as provider,
        call(provider) as caller,
    ):
        head = caller.ask().until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 2\r\n")
        expected = {"error": {"message": "slow down", "type": "rate_limit", "code": 429}}
        assert json.loads(caller.until(b"}}")) == expected
        head = caller.ask().until(b"\r\n\r\n")
        assert b"x-a: 1\r\nx-a: 2\r\ncontent-type: application/json\r\n" in head
        caller.until(b'"Hi there"')
        caller.ask().until(b"HTTP/1.1 599 Scripted\r\n")


def test_megabytes_are_sent_to_a_reader_that_starts_late(tls: bool) -> None:
    with (
        ScriptedProvider(Answer(say(BIG_BODY), say("end")), tls=tls) as provider,
        call(provider) as caller,
    ):
        caller.ask()
        provider.wait(lambda p: the(p).bytes_sent > 100_000)
        assert the(provider).bytes_sent < len(BIG_BODY)
        assert len(caller.until(b"end\r\n0\r\n\r\n")) > len(BIG_BODY)


def test_a_long_answer_does_not_hide_the_end_of_its_connection() -> None:
    answer = Answer(*[say(HELLO)] * 200_000)
    with ScriptedProvider(answer) as provider, call(provider) as caller:
        caller.ask().until(HELLO)
        before = leave(caller, "rst")
        seen(the(provider), "rst", before)


# --- requests


def test_two_requests_are_served_on_one_connection() -> None:
    with ScriptedProvider(Answer(say("one")), Answer(say("two"))) as provider:
        with call(provider) as caller:
            caller.ask(b'{"n":1}').until(b"one\r\n0\r\n\r\n")
            provider.wait("idle")
            caller.ask(b'{"n":2}', "X-Who: me").until(b"two\r\n0\r\n\r\n")
        assert [request.json() for request in provider.requests] == [{"n": 1}, {"n": 2}]
        assert the(provider).requests == provider.requests
        assert provider.requests[1].header("x-who") == "me"
        assert provider.requests[1].header("x-none") is None
        assert provider.requests[0].arrived_ns < provider.requests[1].arrived_ns


def test_requests_sent_before_the_answer_are_served_in_turn() -> None:
    with (
        ScriptedProvider(Answer(say("one")), Answer(say("two"))) as provider,
        call(provider) as caller,
    ):
        caller.ask().ask().ask()
        caller.until(b"one\r\n0\r\n\r\n")
        caller.until(b"two\r\n0\r\n\r\n")
        caller.until(b"two\r\n0\r\n\r\n")


def test_a_connection_ends_with_the_answer_when_the_request_says_so() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        wire = caller.ask(b"{}", "Connection: close").rest()
        assert b"connection: close\r\n" in wire
        assert wire.endswith(b"one\r\n0\r\n\r\n")


def test_the_last_answer_repeats_and_more_can_be_added() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        caller.ask().until(b"one\r\n0\r\n\r\n")
        caller.ask().until(b"one\r\n0\r\n\r\n")
        provider.then(Answer(say("two")), Answer(say("three")))
        caller.ask().until(b"two\r\n0\r\n\r\n")
        assert len(provider.answers) == 1
        provider.answers = [Answer(say("four"))]
        caller.ask().until(b"four\r\n0\r\n\r\n")


def test_a_request_nobody_scripted_an_answer_for_gets_a_500() -> None:
    with ScriptedProvider() as provider, call(provider) as caller:
        assert caller.ask().until(b"\r\n") == b"HTTP/1.1 500 Internal Server Error\r\n"


def test_a_request_in_single_bytes_is_read() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        for (
            byte
        ) in b"POST /a HTTP/1.1\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":
            caller.send(bytes([byte]))
        caller.until(b"one")
        assert provider.requests[0].body == b"{}"


def test_a_caller_that_waits_for_permission_to_send_its_body_gets_it() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        caller.send(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert caller.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.send(b"{}")
        caller.until(b"one")


def test_what_is_not_http_or_not_tls_is_a_fault_of_the_record(tls: bool) -> None:
    with (
        ScriptedProvider(tls=tls) as provider,
        Caller(socket.create_connection(address(provider))) as caller,
    ):
        caller.send(b"nonsense\r\n\r\n")
        the(provider).wait_closed()
        assert (the(provider).fault or "").startswith("not TLS" if tls else "not HTTP")


# --- as a proxy


def test_a_tunnel_is_served_under_the_name_that_was_asked_for() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider:
        with tunnel(provider, "api.example.com:443", "Proxy-Authorization: Basic eA==") as caller:
            caller.until(b"200 Connection established\r\n\r\n")
            caller.wrap(provider.ssl_context, "api.example.com").ask().until(b"one")
            certificate = caller.sock.getpeercert()  # type: ignore[attr-defined]
            assert certificate["subjectAltName"] == (("DNS", "api.example.com"),)
        assert the(provider).proxy_authorization == "Basic eA=="
        assert [request.method for request in provider.requests] == ["POST"]
        assert provider.requests[0].header("proxy-authorization") is None


def test_a_tunnel_to_a_tls_proxy_has_two_layers() -> None:
    with (
        ScriptedProvider(Answer(say(BIG_BODY), say("end")), tls=True) as provider,
        call(provider) as caller,
    ):
        caller.send(b"CONNECT b.example.com:443 HTTP/1.1\r\nHost: b.example.com\r\n\r\n")
        caller.until(b"\r\n\r\n")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        inner = provider.ssl_context.wrap_bio(incoming, outgoing, server_hostname="b.example.com")
        turn(inner.do_handshake, caller, incoming, outgoing)
        inner.write(b"GET / HTTP/1.1\r\nHost: b.example.com\r\n\r\n")
        read = b""
        while b"end" not in read[-20:]:
            read += turn(lambda: inner.read(65536), caller, incoming, outgoing)
        assert len(read) > len(BIG_BODY)


T = TypeVar("T")


def turn(
    step: Callable[[], T], caller: Caller, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
) -> T:
    """Carry a TLS stream on memory through `caller` until `step` succeeds."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            caller.send(outgoing.read())
            incoming.write(caller.sock.recv(65536))


def test_a_request_for_plain_http_is_served_with_its_absolute_target() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        target = "http://api.example.com/v1/x"
        caller.ask(b"{}", "Proxy-Authorization: Basic eA==", target=target).until(b"one")
        assert provider.requests[0].target == target
        assert the(provider).proxy_authorization == "Basic eA=="


def test_plain_http_through_a_tunnel_is_served_too() -> None:
    with (
        ScriptedProvider(Answer(say("one"))) as provider,
        tunnel(provider, "api.example.com:80") as caller,
    ):
        caller.until(b"\r\n\r\n")
        caller.ask().until(b"one")


def test_a_proxy_that_refuses_asks_for_credentials_and_then_forbids() -> None:
    with ScriptedProvider(connect="refuse") as provider:
        with tunnel(provider, "api.example.com:443") as caller:
            assert caller.rest().startswith(b"HTTP/1.1 407 ")
        with tunnel(provider, "api.example.com:443", "Proxy-Authorization: Basic eA==") as caller:
            assert caller.rest().startswith(b"HTTP/1.1 403 ")


# --- names


def test_localhost_and_ipv6_are_names_it_can_have(tls: bool) -> None:
    for host, name in (("localhost", "localhost"), ("::1", "[::1]")):
        with ScriptedProvider(Answer(say("one")), tls=tls, host=host) as provider:
            scheme = "https" if tls else "http"
            assert provider.base_url == f"{scheme}://{name}:{provider.port}/v1"
            with Caller(socket.create_connection((host, provider.port))) as caller:
                if tls:
                    caller.wrap(provider.ssl_context, host)
                caller.ask().until(b"one")


def test_the_authority_is_a_file_as_long_as_the_provider_runs() -> None:
    with ScriptedProvider(Answer(say("one")), tls=True) as provider:
        path = provider.ca_file
        with Caller(socket.create_connection(address(provider))) as caller:
            context = ssl.create_default_context(cafile=path)
            caller.wrap(context, "127.0.0.1").ask().until(b"one")
    assert not Path(path).exists()


# --- waiting


def test_a_wait_that_ends_in_vain_tells_what_was_seen() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        caller.ask().until(b"0\r\n\r\n")
        with pytest.raises(TimeoutError, match=r"2 connection.* stalled.*accepted > head > body"):
            provider.wait("stalled", count=2, timeout=0.01)
        with pytest.raises(TimeoutError, match="which is idle after accepted, head"):
            the(provider).wait_closed(timeout=0.01)
        with pytest.raises(ValueError, match="is not a state"):
            provider.wait("asleep")


async def test_asyncio_waits_without_blocking_its_loop() -> None:
    with ScriptedProvider(Answer(say(HELLO), stall())) as provider:
        waiting = asyncio.create_task(provider.until("stalled"))
        _, writer = await asyncio.open_connection(*address(provider))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await waiting
        await provider.until(lambda p: len(p.requests) == 1)
        ended = asyncio.create_task(the(provider).until_closed())
        await asyncio.sleep(0)
        before = time.monotonic_ns()
        writer.close()
        assert before <= await ended
        await writer.wait_closed()
        with pytest.raises(TimeoutError, match="idle"):
            await provider.until("idle", timeout=0.01)


def test_a_wait_after_the_thread_broke_says_so() -> None:
    bell = Bell()
    bell.fail(ZeroDivisionError())
    with pytest.raises(RuntimeError, match="broke"):
        bell.wait(lambda: False, 1, str)


def test_forgotten_connections_are_served_on() -> None:
    with ScriptedProvider(Answer(say("one"))) as provider, call(provider) as caller:
        caller.ask().until(b"0\r\n\r\n")
        provider.forget()
        caller.ask().until(b"0\r\n\r\n")
        assert provider.connections == []


# --- many, and the end


def test_a_thousand_connections_stall_and_close_together() -> None:
    with ScriptedProvider(Answer(say(HELLO), stall())) as provider:
        callers = [call(provider).ask() for _ in range(1000)]
        provider.wait("stalled", count=1000, timeout=10)
        for caller in callers:
            caller.until(HELLO + b"\r\n")  # unread bytes would make a reset of the FIN
        for caller in callers:
            caller.fin()
        provider.wait("closed", count=1000, timeout=10)
        assert {record.closed_by for record in provider.connections} == {"fin"}


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_stop_leaves_no_descriptor_and_no_thread(tls: bool) -> None:
    before = descriptors()
    provider = ScriptedProvider(Answer(say(HELLO), pause(60), gate("late")), tls=tls).start()
    with call(provider) as caller, call(provider):
        caller.ask().until(HELLO)
        provider.stop()
        provider.stop()
        assert all(record.closed_ns for record in provider.connections)
        assert {record.closed_by for record in provider.connections} == {None}
    assert descriptors() == before
    assert "scripted-provider" not in {thread.name for thread in threading.enumerate()}
    provider.open("late")
    with pytest.raises(RuntimeError, match="once"):
        provider.start()


def test_a_provider_not_started_holds_nothing_and_says_so() -> None:
    before = descriptors()
    provider = ScriptedProvider()
    with pytest.raises(RuntimeError, match="not been started"):
        _ = provider.base_url
    provider.stop()
    assert descriptors() == before


def test_without_epoll_it_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    with pytest.raises(RuntimeError, match="Linux"):
        ScriptedProvider()


def test_without_trustme_tls_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmsp.testing import tls

    monkeypatch.setitem(sys.modules, "trustme", None)
    monkeypatch.setattr(tls, "authority", tls.authority.__wrapped__)
    with pytest.raises(ImportError, match=r"extra `testing`"):
        ScriptedProvider(tls=True).start()


# --- the chat wire


def payloads(events: list[bytes]) -> Iterator[dict[str, object]]:
    for event in events:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        if event != chat.done():
            yield json.loads(event[6:])


def test_a_whole_chat_answer_has_its_text_finish_usage_and_end() -> None:
    events = chat.answer("Hello  wide world ")
    assert events[-1] == b"data: [DONE]\n\n"
    *chunks, last = payloads(events)
    assert last["choices"] == []
    choices = [chunk["choices"][0] for chunk in chunks]  # type: ignore[index]
    assert [choice["delta"].get("content") for choice in choices] == [
        "Hello",
        "  wide",
        " world ",
        None,
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


def test_the_pieces_of_a_chat_stream_have_their_place_in_the_delta() -> None:
    events = [
        chat.role(),
        chat.thinking("hm", field="reasoning"),
        chat.tool_call(0, "c1", "w"),
        chat.arguments(0, '{"q":'),
        chat.error("broken", "server_error"),
    ]
    role, thought, begun, more, failed = payloads(events)
    delta = [chunk["choices"][0]["delta"] for chunk in (role, thought, begun, more)]  # type: ignore[index]
    function = {"name": "w", "arguments": ""}
    assert delta == [
        {"role": "assistant", "content": ""},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"q":'}}]},
    ]
    assert failed["error"] == {"message": "broken", "type": "server_error", "code": "server_error"}


# --- as a process


def test_a_provider_process_is_read_as_a_provider_is() -> None:
    answer = Answer(say(b"\xff"), say(HELLO), gate("go"), stall())
    with ProviderProcess(answer, tls=True) as provider:
        with call(provider) as caller:
            caller.ask(b'{"a":1}').until(HELLO)
            provider.wait("stalled")
            (request,) = provider.requests
            assert (request.target, request.json()) == ("/v1/chat/completions", {"a": 1})
            provider.open("go")
            before = leave(caller, "fin")
        (closed_ns,) = provider.wait_closed()
        (record,) = provider.connections
        assert (record.closed_by, record.closed_ns) == ("fin", closed_ns)
        assert before <= closed_ns <= time.monotonic_ns()
        provider.forget()
        assert provider.connections == []
        with pytest.raises(TimeoutError, match="stalled"):
            provider.wait("stalled", timeout=0.01)


def test_another_program_gives_orders_in_json_lines() -> None:
    command = [sys.executable, "-m", "mmsp.testing", "--text-deltas=3", "--stall"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        port = int(json.loads(process.stdout.readline())["proxy_url"].rpartition(":")[2])
        with Caller(socket.create_connection(("127.0.0.1", port))) as caller:
            caller.ask().until(b"word2 ")
        replies = []
        for order in (
            {"do": "wait_closed", "count": 1, "timeout": 5},
            {"do": "dance"},
            {"do": "stop"},
        ):
            print(json.dumps(order), file=process.stdin, flush=True)
            replies.append(json.loads(process.stdout.readline()))
        assert len(replies[0]["closed_ns"]) == 1
        assert replies[1]["kind"] == "ValueError"
        assert replies[2] == {}
        assert process.wait(5) == 0


def test_an_answer_survives_json() -> None:
    steps = (say(b"\xff"), pause(0.1), gate("g"), drip("ab", 1, 0.1))
    for last in (stall(), cut(), reset()):
        answer = Answer(
            *steps, last, status=201, headers={"a": "b"}, framing="short", head_gate="h"
        )
        copy = answer_from_json(json.loads(json.dumps(answer_to_json(answer))))
        assert vars(copy) == {**vars(answer)}
        assert list(play(copy)) == list(play(answer))


def test_a_script_in_json_is_read() -> None:
    script = {
        "steps": [
            {"say": "a"},
            {"drip": "bc", "size": 1, "every": 0},
            {"text_deltas": 2, "in_one_write": 9},
        ],
        "headers": {"x": "y"},
    }
    answer = answer_from_json(script)
    events = [*chat.deltas(2), *chat.ending(2)]
    assert answer.steps == (say("a"), drip("bc", 1, 0), say(events))
    with pytest.raises(ValueError, match="is not a step"):
        answer_from_json({"steps": [{"shout": "a"}]})
    with pytest.raises(ValueError, match="framing"):
        Answer(framing="loose")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give 1 or more"):
        drip("a", 0, 1)
