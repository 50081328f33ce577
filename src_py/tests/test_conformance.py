"""The language-neutral cases of `conformance/`, run by this implementation.

Each answer is read whole, byte by byte and at random cuts, as its caller would see it. A folder that
does not have the form of a case fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from mmsp import AbortError, AbortSignal, AutoLLMClient, Limits, Stream
from mmsp.base_client import LLMClient
from mmsp.checks import checked_config, checked_messages
from mmsp.codecs.http_error import http_error
from mmsp.errors import MMSPError, UnknownEventError
from mmsp.registry import CLIENTS
from mmsp.request import HttpRequest, Target
from mmsp.sse import EventTooLargeError, Parser
from mmsp.testing import Answer, ScriptedProvider, cut, gate, reset, say, stall
from mmsp.types import UniMessage
from mmsp.wire import from_wire
from tests.asking import QUESTION, client_of
from tests.conformance_cases import (
    ANSWERED,
    ASKED,
    FOLDER,
    FORMS,
    MUST,
    STREAMING,
    WIRES,
    Case,
    cases,
    folders,
)
from tests.reading import Told, told
from tests.test_grammar import sentences

BASE_URL = "https://api.example/v1"
ENDS = {"cut": cut, "reset": reset}


def each(form: Any) -> pytest.MarkDecorator:
    found = cases(form)
    assert found
    return pytest.mark.parametrize("case", found, ids=[case.path.name for case in found])


# ---- the folder itself


def test_every_folder_is_a_case_that_is_run_here() -> None:
    parts = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert parts == {*FORMS, "wires"}
    assert {path.name for path in (FOLDER / "wires").iterdir()} == set(WIRES)
    forms: tuple[Any, ...] = (ASKED, ANSWERED, *FORMS)
    run = [case for form in forms for case in cases(form)]
    assert {case.path for case in run} == set(folders())


@pytest.mark.parametrize("name", MUST)
@pytest.mark.parametrize("wire", STREAMING)
def test_every_wire_is_tried_with_what_all_have(wire: str, name: str) -> None:
    called = MUST[name].get(wire, name)
    assert called.startswith("(") or (FOLDER / "wires" / wire / f"answer-{called}").is_dir()


@pytest.mark.parametrize("path", list(folders()), ids=lambda path: path.name)
def test_a_case_has_the_form_of_its_part(path: Any) -> None:
    case = Case.read(path)
    assert list(case.form.faults(case)) == []
    assert case.facts["about"].endswith((".", ".)"))
    assert all(case.facts["sources"])


@pytest.mark.parametrize(
    "case", [*cases(ANSWERED), *cases("interruption")], ids=lambda case: case.path.name
)
def test_what_a_case_expects_keeps_to_the_grammar(case: Case) -> None:
    finished = sentences(from_wire(case.facts["items"]), whole="stop" in case.facts)
    assert finished or "stop" not in case.facts


# ---- server-sent events


@each("sse")
def test_events(case: Case) -> None:
    for pieces in case.cuts():
        events, too_large = parsed(pieces, case.facts.get("limit", 10**6))
        assert events == [tuple(event) for event in case.facts["events"]]
        assert too_large is case.facts.get("too_large", False)


def parsed(pieces: Iterable[bytes], limit: int) -> tuple[list[tuple[str, str]], bool]:
    parser, found = Parser(limit), []
    too_large = False
    try:
        for piece in pieces:
            found += parser.feed(piece)
        found += parser.close()
    except EventTooLargeError as error:
        found += error.events
        too_large = True
    return [(name, data.decode("utf-8", "replace")) for name, data in found], too_large


# ---- wires


def client_class(case: Case) -> type[LLMClient]:
    return CLIENTS[case.client_type].load()


def target_of(case: Case) -> Target:
    auth = client_class(case).endpoint.auth("a-key")
    return Target(case.facts.get("base_url", BASE_URL), auth)


def encoded(case: Case) -> HttpRequest:
    """The request, made as a client makes it."""
    codec = client_class(case).codec
    config = checked_config(case.facts.get("config", {}), client="C")
    messages = checked_messages(from_wire(case.facts["messages"]), client="C", now=0)
    images = case.facts.get("images", {})
    assert set(codec.needs(messages)) == set(images)
    model, target = case.facts["model"], target_of(case)
    return codec.encode(model, messages, config, target, client="C", images=images)


@each(ASKED)
def test_a_request(case: Case) -> None:
    if "error" in case.facts:
        with pytest.raises(MMSPError) as caught:
            encoded(case)
        assert_error(caught.value, case.facts["error"])
        return
    request, expected = encoded(case), case.facts["request"]
    headers = {name.lower(): value for name, value in request.headers}
    assert (request.method, request.url) == (expected["method"], expected["url"])
    assert expected["headers"].items() <= headers.items()
    assert json.loads(request.body) == expected["body"]


def answer_of(case: Case, pieces: Sequence[bytes], *, strict: bool = False) -> Told:
    limits = Limits(**case.facts.get("limits", {}))
    return told(client_class(case), target_of(case), pieces, limits=limits, strict=strict)


@each(ANSWERED)
def test_an_answer_however_it_was_cut(case: Case) -> None:
    for pieces in case.cuts():
        assert_told(answer_of(case, pieces), case)


@each(ANSWERED)
def test_an_answer_read_strictly(case: Case) -> None:
    """Unknown events are an error in debugging; where a case has none, nothing changes."""
    seen = answer_of(case, [case.body], strict=True)
    if case.facts.get("unknown"):
        assert isinstance(seen.error, UnknownEventError)
    else:
        assert_told(seen, case)


@each(ANSWERED)
async def test_an_answer_over_a_real_connection(case: Case) -> None:
    if "base_url" in case.facts:
        return  # an answer that means something else elsewhere
    limits = Limits(**case.facts.get("limits", {}))
    kind = "text/event-stream" if b"data:" in case.body else "application/json"
    with ScriptedProvider(Answer(say(case.body), content_type=kind)) as provider:
        client = AutoLLMClient("m", "a-key", provider.base_url, case.client_type, limits=limits)
        seen = Told()
        with contextlib.suppress(MMSPError):
            await read_on(client.streaming_response(asked_in(case)), seen)
    at_home(seen.items, provider)
    assert_told(seen, case)


def asked_in(case: Case) -> list[UniMessage]:
    """As many questions as there are answers: every text that is embedded makes a vector."""
    vectors = [item for item in case.facts["items"] if item["type"] == "embedding.done"]
    return [QUESTION] * max(1, len(vectors))


def at_home(items: list[Any], provider: ScriptedProvider) -> None:
    """Where the provider's own host is written, write the one that the cases write."""
    for item in items:
        if item.get("fidelity", {}).get("host") == Target(provider.base_url).host:
            item["fidelity"]["host"] = Target(BASE_URL).host


async def read_on(stream: Stream, seen: Told, count: int | None = None) -> None:
    """Take `count` events, or all that are left."""
    try:
        while count is None or count > 0:
            event = await anext(stream)
            seen.items += event["content_items"]
            if event["event_type"] == "stop":
                assert seen.stop is None
                seen.stop = {key: event[key] for key in ("usage_metadata", "finish_reason")}
            count = None if count is None else count - 1
    except StopAsyncIteration:
        assert count is None, "the case reads more events than there are"
    except (AbortError, MMSPError) as error:
        assert seen.error is None
        seen.error = error


# ---- interruption


@each("interruption")
async def test_an_interruption(case: Case) -> None:
    with ScriptedProvider(scripted(case)) as provider:
        client = client_of(provider, max_retries=0)
        scene = Scene(case, provider, client)
        await scene.play()
        at_home(scene.seen.items, provider)
        assert_told(scene.seen, case)
        assert scene.stream.outcome == case.facts["outcome"]
        assert len(client.get_history()) == case.facts["recorded"]
        if case.facts["items"] == []:
            sent = any(step.keys() & {"wait", "read"} for step in case.facts["steps"])
            assert len(provider.requests) == sent


def scripted(case: Case) -> Answer:
    """What the provider does, each step behind a gate that the scene opens."""
    steps: list[Any] = []
    ended = False
    for number, step in enumerate(case.facts["steps"]):
        if "say" in step:
            steps += [gate(str(number)), say((case.path / step["say"]).read_bytes())]
        elif "end" in step:
            ended = True
            steps += [gate(str(number)), *(ENDS[how]() for how in [step["end"]] if how in ENDS)]
    return Answer(*steps) if ended else Answer(*steps, stall())


class Scene:
    """One stateful call, taken through the steps of a case."""

    def __init__(self, case: Case, provider: ScriptedProvider, client: AutoLLMClient) -> None:
        self.steps: list[dict[str, Any]] = case.facts["steps"]
        self.provider = provider
        self.signal = AbortSignal()
        self.stream = client.streaming_response_stateful(QUESTION, signal=self.signal)
        self.seen = Told()
        self.waiting: asyncio.Task[None] | None = None

    async def play(self) -> None:
        for number, step in enumerate(self.steps):
            ((kind, given),) = step.items()
            await getattr(self, kind)(given, str(number))
        if self.waiting is not None:
            await self.waiting
        await read_on(self.stream, self.seen)

    async def say(self, given: str, gate: str) -> None:
        self.provider.open(gate)

    async def end(self, given: str, gate: str) -> None:
        assert given in (*ENDS, "eof")
        self.provider.open(gate)

    async def read(self, count: int, gate: str) -> None:
        await read_on(self.stream, self.seen, count)

    async def wait(self, given: bool, gate: str) -> None:
        """The caller waits for an event, the provider says nothing."""
        self.waiting = asyncio.create_task(read_on(self.stream, self.seen))
        await self.provider.until("stalled")
        assert not self.waiting.done()

    async def abort(self, reason: Any, gate: str) -> None:
        self.signal.abort(reason)

    async def close(self, given: bool, gate: str) -> None:
        await self.stream.aclose()


# ---- errors


@each("errors")
def test_an_http_error(case: Case) -> None:
    facts = case.facts
    error = http_error(
        facts["status"],
        facts["headers"],
        case.body,
        client="C",
        now=facts.get("now", 0.0),
        secrets=tuple(facts.get("secrets", ())),
    )
    if "wire" in facts:
        codec = CLIENTS[WIRES[facts["wire"]]].load().codec
        assert_error(codec.refusal(error), facts["error"])
    else:
        assert_error(error, facts["error"])


# ---- what was told


def assert_told(seen: Told, case: Case) -> None:
    assert seen.items == from_wire(case.facts["items"])
    assert seen.stop == case.facts.get("stop")
    if "error" in case.facts:
        assert_error(seen.error, case.facts["error"])
    elif "reason" in case.facts:
        assert isinstance(seen.error, AbortError)
        assert seen.error.reason == case.facts["reason"]
    else:
        assert seen.error is None


def assert_error(error: BaseException | None, expected: dict[str, Any]) -> None:
    """`expected` is the error's wire form without `client` and `message`, and words about the message."""
    about = {"message_has", "message_lacks"}
    assert isinstance(error, MMSPError)
    fields = {name: value for name, value in vars(error).items() if name != "client"}
    form = json.loads(json.dumps({"type": type(error).__name__, **fields}))
    assert form == {key: value for key, value in expected.items() if key not in about}, str(error)
    assert list(form) == [key for key in expected if key not in about]
    assert all(words in str(error) for words in expected.get("message_has", ()))
    assert not any(words in str(error) for words in expected.get("message_lacks", ()))
    # a fault of the reader's own is told by the name of its class alone
    assert not str(error).endswith("Error.")
