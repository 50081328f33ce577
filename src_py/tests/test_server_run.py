"""The server as a process: how it starts, what it says, how it ends, and what its callers are told."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from mmsp import AbortSignal
from mmsp.integration.server import announce_server, start_server
from mmsp.integration.server.config import read_table
from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import complete
from tests.server_process import eventually, server, start, write_config
from tests.serving import KEY, MODEL, Caller, Place, Reply, request, row

MID_ITEM = Answer(say(chat.text("One")), stall())
FLOOD = Answer(say([chat.text("x" * 1000)] * 20_000), stall())  # 20 MB
ENDED = {"type": "StreamAbortedError", "reason": "server shutting down"}


async def refused(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and what is said of a server that does not start."""
    running = await start(*arguments)
    code = await running.ended()
    assert running.said == []
    assert running.complaints == []
    return code, running.log


async def mid_item(caller: Caller) -> Reply:
    """A stream that has begun and will not end by itself."""
    await caller.ask()
    reply = await caller.head()
    await caller.until_event(reply)
    return reply


async def rest_of(caller: Caller, reply: Reply) -> list[Any]:
    while data := await caller.piece():
        reply.body += data
    return reply.events


def told(event: Any) -> dict[str, Any]:
    return {name: event["error"].get(name) for name in ENDED}


# ---- starting


async def test_a_server_says_where_it_is_and_what_it_serves(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        rows = [row(provider, server_model_id=name) for name in ("z", "fast", "a")]
        async with server(write_config(tmp_path, *rows)) as running:
            assert running.said == [
                f"MMSP server: http://127.0.0.1:{running.place.port}/v1",
                "Models: z, fast, a",
            ]
            async with Caller(running.place) as caller:
                await caller.ask()
                assert (await caller.whole()).events[-1] == "[DONE]"


async def test_an_open_server_says_so(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(write_config(tmp_path, row(provider), keys=())) as running:
            await eventually(lambda: len(running.said) == 3)
            assert running.said[2].startswith("It is open")


async def test_the_config_may_come_from_the_environment(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        cells = {"api_key": "$THE_KEY", "base_url": "${THE_PLACE}"}
        path = write_config(tmp_path, row(provider, **cells), keys=("$TEAM",))
        running = await start(
            *("--port", "0"),
            MMSP_SERVER_CONFIG=str(path),
            THE_KEY="a-key",
            THE_PLACE=provider.base_url,
            TEAM=KEY,
        )
        await eventually(lambda: len(running.said) >= 2)
        async with Caller(running.place) as caller:
            await caller.ask()
            assert (await caller.whole()).events[-1] == "[DONE]"
        assert provider.requests[0].header("authorization") == "Bearer a-key"
        await running.stop()


async def test_mmsp_serve_is_the_same_command(tmp_path: Path) -> None:
    command = ("-c", "from mmsp.cli import main; main()", "serve")
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, command=command) as running, Caller(running.place) as caller:
            await caller.ask()
            assert (await caller.whole()).events[-1] == "[DONE]"


async def test_ipv6_is_written_in_brackets(tmp_path: Path) -> None:
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--host", "::1") as running:
            assert running.url == f"http://[::1]:{running.place.port}/v1"
            reader, writer = await asyncio.open_connection("::1", running.place.port)
            writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert b"200 OK" in await reader.read()
            writer.close()
            await writer.wait_closed()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_a_name_with_several_addresses_is_served_on_all(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--host", "localhost") as running:
            found = socket.getaddrinfo("localhost", running.place.port, type=socket.SOCK_STREAM)
            assert running.url.startswith("http://localhost:")
            for address in {str(each[4][0]) for each in found}:
                _, writer = await asyncio.open_connection(address, running.place.port)
                writer.close()
                await writer.wait_closed()


async def test_the_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 256:
        pytest.skip(f"the hard limit is {hard}")
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            starting = server(path, "--workers", "2")
            running = await starting.__aenter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for pid in (running.pid, *running.workers):
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            assert limits[0] == hard
        await starting.__aexit__(None, None, None)


# ---- not starting


async def test_without_a_config_the_usage_is_told() -> None:
    code, log = await refused()
    assert code == 2
    assert "--config" in log[-1]
    assert "MMSP_SERVER_CONFIG" in log[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "0"), "--workers"),
        (("--grace", "nan"), "--grace"),
        (("--grace", "-1"), "--grace"),
        (("--port", "65536"), "--port"),
        (("--redis", "localhost"), "--redis"),
        (("--keyfile", "key.pem"), "--certfile"),
        (("--max-streams", "0"), "--max-streams"),
        (("--log-level", "loud"), "--log-level"),
    ],
)
async def test_a_wrong_option_is_a_usage_error(options: tuple[str, ...], said: str) -> None:
    code, log = await refused("--config", "table.json", *options)
    assert (code, said in log[-1]) == (2, True)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_bad_table_stops_the_start_and_names_the_row(tmp_path: Path, workers: str) -> None:
    with ScriptedProvider(complete()) as provider:
        rows = [row(provider), row(provider, server_model_id="odd", client_type="nobody")]
        path = write_config(tmp_path, *rows)
        code, log = await refused("--config", str(path), "--port", "0", "--workers", workers)
        assert code == 1
        assert len(log) == 1
        assert "models[1] (odd)" in log[0]


async def test_what_cannot_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        path = str(write_config(tmp_path, row(provider)))
        (tmp_path / "no.pem").write_text("no certificate")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for options, said in (
                (("--config", str(tmp_path / "none.json")), "none.json: No such file"),
                (("--config", str(tmp_path)), "Is a directory"),
                (("--config", path, "--port", port), f"127.0.0.1:{port}: Address already in use"),
                (("--config", path, "--host", "host.invalid"), "cannot listen on host.invalid"),
                (("--config", path, "--certfile", "none.pem"), "none.pem does not exist"),
                (("--config", path, "--certfile", str(tmp_path / "no.pem")), "no.pem"),
            ):
                code, log = await refused(*options)
                assert code == 1, log
                assert len(log) == 1, log
                assert said in log[0]


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    key = tmp_path / "key.pem"
    command: tuple[str, ...] = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-passout",
        "pass:word",
    )
    command += ("-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert))
    making = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    assert await making.wait() == 0
    with ScriptedProvider(complete()) as provider:
        path = str(write_config(tmp_path, row(provider)))
        code, log = await refused("--config", path, "--certfile", str(cert), "--keyfile", str(key))
        assert code == 1
        assert "password" in log[0]


# ---- TLS


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_https_is_served_and_announced(tmp_path: Path, workers: str) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "server.pem")
    )
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with ScriptedProvider(MID_ITEM) as provider:
        path = write_config(tmp_path, row(provider))
        options = ("--certfile", str(tmp_path / "server.pem"), "--workers", workers)
        async with server(path, *options, "--grace", "0") as running:
            assert running.url.startswith("https://127.0.0.1:")
            caller = Caller(running.place)
            caller.reader, caller.writer = await asyncio.open_connection(
                "127.0.0.1", running.place.port, ssl=trusting
            )
            reply = await mid_item(caller)
            running.send(signal.SIGTERM)
            assert told((await rest_of(caller, reply))[-2]) == ENDED
            await caller.hang_up()
            assert await running.ended() == 0
            assert running.complaints == [], running.log


# ---- ending

BOTH = pytest.mark.parametrize("workers", ["1", "2"])


@BOTH
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_server_ends_at_once(number: int, workers: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, "--workers", workers, "--grace", "600") as running:
            running.send(number)
            assert await running.ended() == 0
            assert running.complaints == [], running.log


@BOTH
async def test_streams_may_end_in_the_time_of_grace(workers: str) -> None:
    answer = Answer(*(say(each) for each in chat.answer("All is well")), head_gate="go")
    with ScriptedProvider(answer) as provider:
        async with server(provider, "--workers", workers, "--grace", "600") as running:
            async with Caller(running.place) as caller:
                await caller.ask()
                await provider.until("answering")
                running.send(signal.SIGTERM)
                await eventually(lambda: _is_refused(running.place))
                provider.open("go")
                events = (await caller.whole()).events
                assert (events[-2]["event_type"], events[-1]) == ("stop", "[DONE]")
            assert await running.ended() == 0
            assert running.complaints == [], running.log


async def _is_refused(place: Place) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it had not been accepted when the listener closed
        return False
    writer.close()
    return False


@BOTH
async def test_after_the_grace_callers_are_told_and_the_provider_is_closed(workers: str) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with server(provider, "--workers", workers, "--grace", "0.2") as running:
            async with Caller(running.place) as caller, Caller(running.place) as second:
                replies = [await mid_item(caller), await mid_item(second)]
                running.send(signal.SIGTERM)
                for each, reply in zip((caller, second), replies, strict=True):
                    *_, error, done = await rest_of(each, reply)
                    assert (told(error), done) == (ENDED, "[DONE]")
                for connection in provider.connections:
                    await connection.until_closed()
            assert await running.ended() == 0
            assert running.complaints == [], running.log


@BOTH
async def test_before_the_first_event_the_end_is_a_status(workers: str) -> None:
    with ScriptedProvider(Answer(stall())) as provider:
        async with server(provider, "--workers", workers, "--grace", "0") as running:
            async with Caller(running.place) as caller:
                await caller.ask()
                await provider.until("stalled")
                running.send(signal.SIGTERM)
                reply = await caller.whole()
                assert (reply.status, reply.error["type"]) == (503, "StreamAbortedError")
                assert reply.error["reason"] == "server shutting down"
            assert await running.ended() == 0


@BOTH
async def test_a_second_signal_skips_the_grace(workers: str) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with server(provider, "--workers", workers, "--grace", "600") as running:
            async with Caller(running.place) as caller:
                reply = await mid_item(caller)
                running.send(signal.SIGTERM)
                await running.logged("shutting down", int(workers))
                running.send(signal.SIGINT)
                assert told((await rest_of(caller, reply))[-2]) == ENDED
            assert await running.ended() == 0
            assert running.complaints == [], running.log


async def test_the_same_signal_to_all_processes_is_one_signal() -> None:
    """A terminal's Ctrl-C, a service manager's SIGTERM: they reach the workers as well."""
    answer = Answer(*(say(each) for each in chat.answer("All is well")), head_gate="go")
    for number in (signal.SIGINT, signal.SIGTERM):
        with ScriptedProvider(answer) as provider:
            async with server(provider, "--workers", "2", "--grace", "600") as running:
                async with Caller(running.place) as caller:
                    await caller.ask()
                    await provider.until("answering")
                    for pid in (*running.workers, running.pid):
                        os.kill(pid, number)
                    await running.logged("shutting down", 2)
                    provider.open("go")
                    assert (await caller.whole()).events[-1] == "[DONE]"
                assert await running.ended() == 0


async def test_while_it_ends_kept_connections_are_told_so() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with server(provider, "--grace", "600") as running:
            async with Caller(running.place) as kept, Caller(running.place) as caller:
                await kept.send("GET", "/readyz")
                assert (await kept.whole()).status == 200
                await mid_item(caller)
                running.send(signal.SIGTERM)
                await eventually(lambda: _is_refused(running.place))
                for method, path in (("GET", "/readyz"), ("POST", "/v1/stream")):
                    await kept.send(method, path, {})
                    assert (await kept.whole()).status == 503
                await kept.send("GET", "/healthz")
                assert (await kept.whole()).status == 200
            assert await running.ended() == 0


@BOTH
async def test_a_caller_that_does_not_read_does_not_hold_the_process(workers: str) -> None:
    with ScriptedProvider(FLOOD) as provider:
        options = ("--workers", workers, "--grace", "0")
        async with server(provider, *options) as running, Caller(running.place) as caller:
            transport: Any = caller.writer.transport
            transport.pause_reading()
            await caller.ask()
            await provider.until(lambda it: it.connections and it.connections[0].bytes_sent)
            running.send(signal.SIGTERM)
            await provider.connections[0].until_closed()
            assert await running.ended() == 0
            assert running.complaints == [], running.log


async def test_a_request_that_never_becomes_whole_does_not_hold_the_process() -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, "--grace", "600") as running, Caller(running.place) as caller:
            await caller.send("POST", "/v1/stream", b"{", headers={"Content-Length": "1000"})
            assert (await request(running.place, "GET", "/v1/models")).status == 200
            running.send(signal.SIGTERM)
            assert await running.ended() == 0
            assert running.complaints == [], running.log


# ---- another table


@BOTH
async def test_sighup_loads_the_table_anew_and_streams_stay(tmp_path: Path, workers: str) -> None:
    with ScriptedProvider(MID_ITEM, complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--workers", workers) as running, Caller(running.place) as caller:
            reply = await mid_item(caller)
            write_config(tmp_path, row(provider, server_model_id="new"), keys=("other",))
            running.send(signal.SIGHUP)
            await running.logged("serving a new table: new", int(workers))
            for _ in range(4):
                listed = await request(running.place, "GET", "/v1/models", key="other")
                assert [each["id"] for each in listed.json()["data"]] == ["new"]
            assert (await request(running.place, "GET", "/v1/models")).status == 401
            async with Caller(running.place) as second:
                await second.ask(model="new", key="other")
                assert (await second.whole()).events[-1] == "[DONE]"
            assert len(reply.events) == 1
            assert provider.connections[0].closed_ns is None


@BOTH
async def test_a_bad_table_is_logged_and_the_old_one_stays(tmp_path: Path, workers: str) -> None:
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, "--workers", workers) as running:
            for text, said in (
                ("{", "this is no JSON"),
                (json.dumps({"models": []}), "models has no row"),
                (json.dumps({"models": [row(provider, client_type="no")]}), "models[0] (fast)"),
            ):
                path.write_text(text)
                running.send(signal.SIGHUP)
                assert "the table stays as it was" in await running.logged(said)
            path.unlink()
            running.send(signal.SIGHUP)
            await running.logged("No such file")
            assert (await request(running.place, "GET", "/v1/models")).status == 200


# ---- the log


async def test_the_log_tells_of_each_stream_and_never_what_was_said_nor_a_key() -> None:
    secret = "the-team's-own-key"
    said = "All is well"
    for options in ((), ("--log-json",)):
        with ScriptedProvider(complete(said), Answer.error(401, "wrong key a-key")) as provider:
            rows = row(provider, api_key="sk-upstream")
            with tempfile.TemporaryDirectory() as folder:
                path = write_config(Path(folder), rows, keys=(secret,))
                async with server(path, *options, "--log-level", "debug") as running:
                    for _ in range(2):
                        async with Caller(running.place) as caller:
                            await caller.ask(key=secret)
                            await caller.whole()
                    line = await running.logged("failure")
            text = "\n".join(running.log)
            for word in (secret, "sk-upstream", "well", "Hello"):
                assert word not in text
            if options:
                lines = [json.loads(each) for each in running.log]
                streams = [each for each in lines if "outcome" in each]
                assert [each["outcome"] for each in streams] == ["success", "failure"]
                assert streams[0]["model"] == MODEL
                assert {"time", "level", "logger", "id", "ms"} <= streams[0].keys()
            else:
                assert "outcome=failure" in line
                assert "error=UpstreamError" in line


# ---- from code


def test_a_server_is_started_from_code_and_stopped_by_a_signal_of_ours() -> None:
    stop, port, said = AbortSignal(), threading.Event(), []

    def announced(config: Any, host: str, at: int, *, tls: bool = False) -> None:
        announce_server(config, host, at, tls=tls)
        said.append(at)
        port.set()

    with ScriptedProvider(complete()) as provider:
        running = threading.Thread(
            target=start_server,
            args=([row(provider)], [KEY]),
            kwargs={"port": 0, "stop": stop, "announce": announced, "grace": 0, "max_streams": 3},
        )
        running.start()
        assert port.wait(10)

        async def ask() -> Reply:
            async with Caller(Place(said[0])) as caller:
                await caller.ask()
                return await caller.whole()

        assert asyncio.run(ask()).events[-1] == "[DONE]"
        stop.abort()
        running.join(20)
        assert not running.is_alive()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "models or with config"),
        ({"models": [], "config": "table.json"}, "models or with config"),
        ({"config": "table.json", "api_keys": ["k"]}, "api_keys"),
        ({"models": []}, "no row"),
        ({"workers": 0}, "workers"),
        ({"grace": -1.0}, "grace"),
        ({"keyfile": "k.pem"}, "certfile"),
    ],
)
def test_what_makes_no_sense_from_code_is_a_value_error(given: dict[str, Any], said: str) -> None:
    good = {"models": [{"model_id": "m", "api_key": "k", "server_model_id": "m"}]}
    options = given if not given or {"models", "config"} & given.keys() else good | given
    with pytest.raises(ValueError, match=said):
        start_server(**options)


def test_the_announcement_is_three_facts(capsys: pytest.CaptureFixture[str]) -> None:
    config = read_table([{"model_id": "m", "api_key": "k", "server_model_id": "a"}])
    announce_server(config, "::1", 25752, tls=True)
    assert capsys.readouterr().out.splitlines() == [
        "MMSP server: https://[::1]:25752/v1",
        "Models: a",
        "It is open: there are no api_keys, so whoever reaches it may use it.",
    ]
