"""Random calls, random faults of the provider, random stops; and what must hold after each, whatever came.

A case is made of its seed alone: `python -m tests.fault_cases 4711` plays one, `… 0 20000` all of these.
The rules are those of a stop: one outcome, nothing recorded without a `stop`, the provider's connection
closed, the client free for the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from mmsp import AbortError, AutoLLMClient, Limits, MMSPError, Stream, Timeouts
from mmsp.testing import Answer, ScriptedProvider, Step, cut, drip, pause, reset, say, stall
from tests.asking import QUESTION, complete_on
from tests.interruption_table import STREAMING, WIRES
from tests.serving import KEY, MODEL, row, served
from tests.test_grammar import sentences

__all__ = ["FAULTS", "Case", "play"]

FAULTS = (
    "none", "stall", "cut", "reset", "short", "drip", "garbage", "no JSON", "oversize", "endless",
    "late head", "status", "retried", "redirect", "html", "nothing", "half an event",
)  # fmt: skip
ROUTES = ("direct", "direct", "TLS", "proxy", "server")
STOPS = ("never", "never", "abort", "abort from a thread", "close", "cancel", "leave")
LATE = 0.02  # s
LIMITS = Limits(event_bytes=100_000, answer_bytes=200_000)
TIMEOUTS = Timeouts(connect=5, first_event=0.6, idle=0.6, total=5)
_CANCELLED = asyncio.CancelledError
CLOSED_WITHIN = 2.0  # s; how fast is another test's affair


@dataclass
class Case:
    """What is done. `after` is how many events are read before the stop."""

    seed: int
    client_type: str
    route: str
    stateful: bool
    traced: bool
    fault: str
    stop: str
    after: int
    delay: float
    answer: Answer
    wanted: str

    @classmethod
    def of(cls, seed: int) -> Case:
        dice = random.Random(seed)
        client_type, fault = dice.choice(STREAMING), dice.choice(FAULTS)
        wanted = " ".join(
            dice.choice(["All", "is", "wéll", "né", "😀"]) for _ in range(dice.randint(1, 12))
        )
        return cls(
            seed=seed,
            client_type=client_type,
            route=dice.choice(ROUTES if client_type != "mmsp" else ROUTES[:-1]),
            stateful=dice.random() < 0.6,
            traced=dice.random() < 0.3,
            fault=fault,
            stop=dice.choice(STOPS),
            after=dice.randint(0, 6),
            delay=dice.choice([0.0, 0.0, dice.random() * LATE]),
            answer=_answer(dice, WIRES[client_type].answer(wanted), fault),
            wanted=wanted,
        )


def _answer(dice: random.Random, events: list[bytes], fault: str) -> Answer:
    body = b"".join(events)
    if fault == "status":
        return Answer.error(dice.choice([400, 401, 404, 413, 418]), "no")
    if fault == "retried":
        return Answer.error(
            dice.choice([429, 500, 503, 529]), "busy", headers={"retry-after-ms": "1"}
        )
    if fault == "redirect":
        return Answer(status=302, headers={"location": "http://127.0.0.1:9/"})
    if fault in ("html", "nothing"):
        return Answer(say(b"<html>no</html>" if fault == "html" else b""), framing="length")
    return Answer(*_steps(dice, body, fault), **_framing(dice, fault))


def _framing(dice: random.Random, fault: str) -> dict[str, Any]:
    if fault == "short":
        return {"framing": "short"}
    if fault in ("stall", "oversize", "endless"):  # with a length the body would be whole
        return {"framing": "chunked"}
    head = {"head_delay": dice.random() * LATE} if fault == "late head" else {}
    return {"framing": dice.choice(["chunked", "chunked", "length", "close"]), **head}


def _steps(dice: random.Random, body: bytes, fault: str) -> list[Step]:
    """The body in pieces, with the fault at one of its places."""
    where = dice.randint(0, len(body))
    before, after = body[:where], body[where:]
    match fault:
        case "stall":
            return [*_pieces(dice, before), stall()]
        case "cut" | "short":
            return [*_pieces(dice, before), cut()]
        case "reset":
            return [*_pieces(dice, before), reset()]
        case "drip":
            return [drip(body, dice.choice([7, 50]), 0.001)]
        case "garbage":
            return [*_pieces(dice, before), say(dice.randbytes(dice.randint(1, 300))), say(after)]
        case "no JSON":
            return [*_pieces(dice, before), say(b"\n\ndata: not { JSON\n\n"), say(after)]
        case "oversize":
            return [*_pieces(dice, before), say(b"data: " + b"x" * 150_000), stall()]
        case "endless":
            return [say(body), *(say(b": a comment\n\n") for _ in range(50)), stall()]
        case "half an event":
            return [say(before)]
        case _:
            return _pieces(dice, body)


def _pieces(dice: random.Random, body: bytes) -> list[Step]:
    cuts = sorted(dice.randint(0, len(body)) for _ in range(dice.randint(0, 8)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if body[a:b]]
    found: list[Step] = []
    for each in pieces:
        found.append(say(each))
        if dice.random() < 0.3:
            found.append(pause(0.002))
    return found


# ---- playing one


@dataclass
class Seen:
    """What the caller got, and how it ended."""

    events: list[Any] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def items(self) -> list[Any]:
        return [item for event in self.events for item in event["content_items"]]

    @property
    def stops(self) -> int:
        return sum(event["event_type"] == "stop" for event in self.events)


async def play(case: Case) -> str:
    """Play it and check what must hold; the outcome, for the statistics. Raises `AssertionError`."""
    with (
        tempfile.TemporaryDirectory() as cache,
        ScriptedProvider(case.answer, tls=case.route == "TLS") as provider,
        _environment(MMSP_CACHE_DIR=cache),
    ):
        async with _client(case, provider) as client:
            seen = Seen()
            outcome = await _call(case, client, seen)
            _check_what_came(case, seen, outcome)
            await _check_the_connections(provider, outcome)
            _check_what_is_kept(case, client, seen, outcome, cache)
            await _check_the_next_call(case, provider, client)
        return outcome


@contextlib.asynccontextmanager
async def _client(case: Case, provider: ScriptedProvider) -> AsyncIterator[AutoLLMClient]:
    settings: dict[str, Any] = {"limits": LIMITS, "timeouts": TIMEOUTS, "max_retries": 1}
    if case.route == "TLS":
        settings["ssl_context"] = provider.ssl_context
    if case.route == "server":
        app = _app(case, provider)
        async with served(app) as place:
            yield AutoLLMClient(MODEL, KEY, place.base_url, "mmsp", **settings)
            await asyncio.wait_for(app.streams.none_left(), CLOSED_WITHIN)
        return
    proxy = provider.proxy_url if case.route == "proxy" else None
    with _environment(HTTP_PROXY=proxy, http_proxy=None):
        url = "http://provider.example/v1" if proxy else provider.base_url
        yield AutoLLMClient("some-model", "a-key", url, case.client_type, **settings)


def _app(case: Case, provider: ScriptedProvider) -> Any:
    from mmsp.integration.server import create_server_app

    return create_server_app([row(provider, client_type=case.client_type)], [KEY])


async def _call(case: Case, client: AutoLLMClient, seen: Seen) -> str:
    config: Any = {"trace_id": "a/b"} if case.traced else {}
    if case.stateful:
        stream = client.streaming_response_stateful(QUESTION, config)
    else:
        stream = client.streaming_response([QUESTION], config)
    reading = asyncio.ensure_future(_read(stream, seen, case.after))
    if case.stop == "never":
        await asyncio.wait((reading,))
    else:
        await asyncio.wait((reading,), timeout=5 if case.after else case.delay)
        if case.after:
            await asyncio.sleep(case.delay)
        if reading.done():  # a read that waits, if there is still something to wait for
            reading = asyncio.ensure_future(_read(stream, seen, 10_000))
            await asyncio.sleep(0)
        await _stop(case.stop, stream, reading)
    await asyncio.wait((reading,))
    await _read(stream, seen, 10_000)
    outcome = str(stream.outcome)
    if case.stop == "leave":
        await stream.aclose()
    return outcome


async def _read(stream: Stream, seen: Seen, count: int) -> None:
    try:
        for _ in range(count):
            seen.events.append(await anext(stream))
    except StopAsyncIteration:
        pass
    except (MMSPError, asyncio.CancelledError) as error:
        seen.errors.append(error)


async def _stop(way: str, stream: Stream, reading: asyncio.Future[None]) -> None:
    match way:
        case "abort":
            stream.abort("why")
        case "abort from a thread":
            thread = threading.Thread(target=stream.abort, args=("why",))
            thread.start()
            thread.join()
        case "cancel":
            reading.cancel()
        case _:
            await stream.aclose()


# ---- what must hold


def _check_what_came(case: Case, seen: Seen, outcome: str) -> None:
    finished = outcome == "finished"
    errors = _of_the_stream(seen.errors, outcome)
    assert seen.stops == (1 if finished else 0)
    assert len(errors) <= 1
    sentences(
        [item for item in seen.items if not item["type"].startswith("embedding")], whole=finished
    )
    if finished:
        assert errors == []
        assert seen.events[-1]["event_type"] == "stop"
    error = errors[0] if errors else None
    expected = {"aborted": AbortError, "failed": MMSPError, "cancelled": asyncio.CancelledError}
    closed_before_it_was_told = case.stop in ("close", "leave") and error is None
    if outcome in expected and not (outcome == "failed" and closed_before_it_was_told):
        assert isinstance(error, expected[outcome]), (outcome, error)
    if outcome == "closed":
        assert error is None
    if case.fault == "none" and case.stop == "never":
        assert finished, error
    if finished and case.fault in ("none", "drip", "late head", "endless"):
        text = "".join(item["text"] for item in seen.items if item["type"] == "text.done")
        assert text == case.wanted


def _of_the_stream(errors: list[BaseException], outcome: str) -> list[BaseException]:
    """Without what a task got that was cancelled while the stream had ended otherwise."""
    return [each for each in errors if outcome == "cancelled" or type(each) is not _CANCELLED]


async def _check_the_connections(provider: ScriptedProvider, outcome: str) -> None:
    """All but a kept one are closed."""
    for record in list(provider.connections):
        give_up = time.monotonic() + CLOSED_WITHIN
        while record.closed_ns is None and record.state not in ("idle", "accepted"):
            assert time.monotonic() < give_up, f"a connection is {record.state} after {outcome}"
            await asyncio.sleep(0.002)


def _check_what_is_kept(
    case: Case, client: AutoLLMClient, seen: Seen, outcome: str, cache: str
) -> None:
    recorded = 2 if case.stateful and outcome == "finished" else 0
    assert len(client.get_history()) == recorded
    files = [name for _, _, names in os.walk(cache) for name in names]
    traced = case.traced and outcome == "finished" and client.client_type != "mmsp"
    assert sorted(files) == (["b.json", "b.txt"] if traced else [])


async def _check_the_next_call(
    case: Case, provider: ScriptedProvider, client: AutoLLMClient
) -> None:
    provider.answers = [complete_on(WIRES[case.client_type])]
    client.clear_history()
    message = await client.streaming_response_stateful(QUESTION).message()
    assert message.get("finish_reason") == "stop"


@contextlib.contextmanager
def _environment(**changes: str | None) -> Any:
    before = dict(os.environ)
    for name in [each for each in before if each.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update({name: value for name, value in changes.items() if value is not None})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ---- the command


def main() -> None:
    logging.disable()
    first, last = int(sys.argv[1]), int(sys.argv[2] if len(sys.argv) > 2 else int(sys.argv[1]) + 1)
    outcomes: Counter[str] = Counter()
    failed = []
    for seed in range(first, last):
        case = Case.of(seed)
        try:
            outcomes[asyncio.run(play(case))] += 1
        except Exception as error:
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}\n  {case}"[:800], flush=True)
        if seed % 200 == 0:
            gc.collect()
    print(f"{last - first} cases, {dict(outcomes)}, failed: {failed or 'none'}")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
