"""Several processes on one socket: they share the work and the counts, and are looked after."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mmsp.testing import Answer, ScriptedProvider, chat, say, stall
from tests.asking import complete
from tests.server_process import ServerProcess, eventually, server, write_config
from tests.serving import KEY, MODEL, Caller, Reply, request, row

MID_ITEM = Answer(say(chat.text("One")), stall())
WORKERS = ("--workers", "2")


async def ask(running: ServerProcess, **options: Any) -> Reply:
    async with Caller(running.place) as caller:
        await caller.ask(**options)
        return await caller.whole()


async def both_serve(running: ServerProcess) -> None:
    """Ask until each worker has written a line of its own."""

    async def done() -> bool:
        await ask(running)
        return len(pids_in(running.log)) == 2

    await eventually(done)


def pids_in(log: Iterable[str]) -> set[str]:
    return {line.split("[", 1)[1].split("]")[0] for line in log if "outcome=" in line}


async def counts(running: ServerProcess) -> Any:
    return (await request(running.place, "GET", "/v1/metrics")).json()


async def test_workers_share_the_requests_and_each_shows_the_counts_of_all() -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, *WORKERS) as running:
            assert len(running.workers) == 2
            await both_serve(running)
            asked = len(provider.requests)
            for _ in range(6):
                seen = await counts(running)
                assert (seen["requests"], seen["successes"], seen["in_flight"]) == (asked, asked, 0)
                text = (await request(running.place, "GET", "/metrics", key=None)).body.decode()
                assert f'mmsp_requests_total{{model="{MODEL}"}} {asked}.0' in text


async def test_a_worker_that_is_killed_is_replaced_and_its_counts_and_streams_are_not_lost() -> (
    None
):
    with ScriptedProvider(complete(), complete(), MID_ITEM) as provider:
        async with server(provider, *WORKERS) as running:
            for _ in range(2):
                await ask(running)
            before = set(running.workers)
            async with Caller(running.place) as caller:
                await caller.ask()
                reply = await caller.head()
                await caller.until_event(reply)
                assert (await counts(running))["in_flight"] == 1
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
                await running.logged("another takes its place", 2)
            await provider.connections[-1].until_closed()
            await eventually(lambda: len(set(running.workers) - before) == 2)

            async def all_is_counted() -> bool:
                seen = await counts(running)
                assert seen["requests"] == 3
                return bool((seen["successes"], seen["failures"], seen["in_flight"]) == (2, 1, 0))

            await eventually(all_is_counted)
            assert not set(running.workers) & before


async def test_a_worker_that_is_told_to_end_ends_its_streams_and_is_replaced() -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        async with server(provider, *WORKERS, "--grace", "0") as running:
            before = set(running.workers)
            async with Caller(running.place) as caller:
                await caller.ask()
                reply = await caller.head()
                await caller.until_event(reply)
                for pid in before:
                    os.kill(pid, signal.SIGTERM)
                while data := await caller.piece():
                    reply.body += data
                assert reply.events[-2]["error"]["type"] == "StreamAbortedError"
                assert reply.events[-1] == "[DONE]"
            await eventually(lambda: len(set(running.workers) - before) == 2)
            assert (await request(running.place, "GET", "/v1/models")).status == 200


async def test_a_worker_born_after_sighup_serves_the_new_table(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        path = write_config(tmp_path, row(provider))
        async with server(path, *WORKERS) as running:
            write_config(tmp_path, row(provider, server_model_id="new"))
            running.send(signal.SIGHUP)
            await running.logged("serving a new table", 2)
            path.unlink()  # what was loaded counts, not what the file has become
            before = set(running.workers)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            await eventually(lambda: len(set(running.workers) - before) == 2)
            listed = (await request(running.place, "GET", "/v1/models")).json()
            assert [each["id"] for each in listed["data"]] == ["new"]


async def test_workers_whose_parent_is_killed_end_by_themselves_and_leave_nothing(
    tmp_path: Path,
) -> None:
    with ScriptedProvider(MID_ITEM) as provider:
        options = (*WORKERS, "--grace", "0")
        async with server(provider, *options, TMPDIR=str(tmp_path)) as running:
            workers = running.workers
            async with Caller(running.place) as caller:
                await caller.ask()
                reply = await caller.head()
                await caller.until_event(reply)
                running.send(signal.SIGKILL)
                while data := await caller.piece():
                    reply.body += data
                assert reply.events[-2]["error"]["reason"] == "server shutting down"
            await provider.connections[0].until_closed()
            await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
            assert await running.ended() == -signal.SIGKILL
            assert running.complaints == []
            assert list(tmp_path.iterdir()) == []


async def test_the_folder_of_the_counts_is_removed(tmp_path: Path) -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, *WORKERS, TMPDIR=str(tmp_path)) as running:
            await ask(running)
            (folder,) = tmp_path.iterdir()
            assert list(folder.glob("counter_*.db"))
            running.send(signal.SIGTERM)
            assert await running.ended() == 0
    assert list(tmp_path.iterdir()) == []


async def test_without_redis_a_stop_by_id_that_may_belong_to_another_worker_says_so() -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, *WORKERS) as running:
            reply = await request(running.place, "DELETE", f"/v1/streams/{'a' * 32}")
            assert reply.status == 503
            assert "--redis" in reply.error["message"]
            listed = (await request(running.place, "GET", "/v1/streams")).json()
            assert (listed["data"], listed["complete"]) == ([], False)


@pytest.mark.parametrize("key", [KEY, "wrong"])
async def test_every_worker_asks_for_a_key(key: str) -> None:
    with ScriptedProvider(complete()) as provider:
        async with server(provider, *WORKERS) as running:
            for _ in range(8):
                reply = await request(running.place, "GET", "/v1/models", key=key)
                assert reply.status == (200 if key == KEY else 401)
