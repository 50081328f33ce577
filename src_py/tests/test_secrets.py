"""No error shows a secret: wherever the caller put it, whatever route a provider echoes it by.

Each case goes through the real client: the provider was shown the secret and says it again.
"""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from mmsp import AutoLLMClient, MMSPError
from mmsp.registry import CLIENTS
from mmsp.testing import Answer, ScriptedProvider, pause, reset, say
from tests.asking import QUESTION
from tests.ends_table import ENDS, Ends
from tests.interruption_table import EXHAUSTIVE, STREAMING, WHOLE_CALLS, WIRES
from tests.raw_server import RawServer, head

SECRET = "sk-secret-0123456789-abcdefghijklmnop/qrstuvwxyz"
NEVER = SECRET[:9]  # nor its beginning


@dataclass(frozen=True)
class Place:
    """Where a caller puts a secret."""

    key: str = "an-api-key"
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""


PLACES = {
    "api_key": Place(SECRET),
    "Authorization": Place(headers={"Authorization": f"Bearer {SECRET}"}),
    "x-api-key": Place(headers={"X-Api-Key": SECRET}),
    "cookie": Place(headers={"Cookie": f"a=b; session={SECRET}"}),
    "query": Place(query=f"?key={SECRET}"),
}


def filled(length: int, text: str) -> str:
    """`text` behind so many characters that a cut at `length` goes through the secret in it."""
    before, _, _ = text.partition(SECRET)
    return "." * (length - len(before) - 12) + text


def refusals() -> dict[str, Answer]:
    said = f"Incorrect API key provided: {SECRET}"
    text: dict[str, Any] = {"content_type": None, "status": 401}
    return {
        "a refusal": Answer.error(401, said, type=SECRET),
        "a refusal's code": Answer.json({"error": {"message": "no", "code": SECRET}}, status=400),
        "a refusal, anywhere": Answer.json({SECRET: [SECRET, {"a": SECRET}]}, status=403),
        "a refusal in words": Answer(say(said), **text),
        "a refusal that is cut at 200 characters": Answer(say(filled(200, said)), **text),
        "a refusal that is cut at 4096 characters": Answer.error(401, filled(4096, said)),
        "a refusal that broke off": Answer(say(said[:-20]), pause(0.03), reset(), **text),
        "a refusal that broke off in JSON": Answer(say(f'{{"e": "{said[:-20]}'), **text),
        "a redirect": Answer(status=302, headers={"location": f"https://b.test/?k={SECRET}"}),
        "a request id": Answer.error(500, "no", headers={"x-request-id": SECRET}),
    }


def no_streams() -> dict[str, Answer]:
    said = f"Incorrect API key provided: {SECRET}"
    return {
        "a JSON error": Answer.json({"error": {"message": said, "type": SECRET, "code": SECRET}}),
        "a JSON error that is an object": Answer.json({"error": {"message": {"key": SECRET}}}),
        "a JSON error cut at 4096 characters": Answer.json({"error": filled(4096, said)}),
        "a page": Answer(say(f"<html>{said}</html>")),
        "a page that is cut": Answer(say("<html>" + filled(194, said))),
        "another object": Answer.json({"hello": said}),
        "another object that is cut": Answer.json({"hello": filled(190, said)}),
        "a frame": Answer(say(f"data: {said}\n\n")),
        "a frame that is cut": Answer(say(f"data: {filled(200, said)}\n\n")),
    }


def events(client_type: str) -> dict[str, Answer]:
    said = f"Incorrect API key provided: {SECRET}"
    ends = ENDS[WIRES[client_type].__name__]
    wire = ends.wire
    told = {
        "an error event": Answer(say(wire.error(said))),
        "an error event after text": Answer(say(wire.text("a") + wire.error(said))),
        "an error event cut at 4096 characters": Answer(say(wire.error(filled(4096, said)))),
        "an error event in words": Answer(say(f"event: error\ndata: {said}\n\n")),
        "an error event in words, cut": Answer(say(f"event: error\ndata: {filled(200, said)}\n\n")),
    }
    if ends.arguments_in_pieces and client_type not in WHOLE_CALLS:
        told["a call's arguments"] = _call(ends, said)
    return told


def _call(ends: Ends, said: str) -> Answer:
    return Answer(say(ends.call(f'{{"q": "{filled(66, said)}{"." * 200}') + ends.called))


def shown_by(error: BaseException | None) -> str:
    """All that a log or a wire could show of an error, and of those behind it."""
    if error is None:
        return ""
    own = [str(error), repr(error), repr(error.args), repr(vars(error))]
    own += traceback.format_exception(error)
    behind = error.__cause__ if error.__suppress_context__ else error.__context__
    return " ".join([*own, shown_by(behind)])


def client_with(place: Place, base_url: str, client_type: str, **settings: Any) -> AutoLLMClient:
    return AutoLLMClient(
        "m",
        place.key,
        base_url + place.query,
        client_type,
        place.headers,
        max_retries=0,
        **settings,
    )


async def fails(work: Callable[[], Any]) -> str:
    with pytest.raises(MMSPError) as caught:
        await work()
    copies = [copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))]
    return " ".join(map(shown_by, [caught.value, *copies]))


ROUTES = [
    pytest.param(
        client_type,
        answer,
        PLACES[place],
        id=f"{client_type}-{route}-{place}",
        marks=[] if client_type in EXHAUSTIVE else [pytest.mark.exhaustive],
    )
    for client_type in CLIENTS
    for place in (PLACES if client_type in EXHAUSTIVE else ("api_key", "Authorization"))
    for route, answer in {
        **refusals(),
        **no_streams(),
        **(events(client_type) if client_type in STREAMING else {}),
    }.items()
]


@pytest.mark.parametrize(("client_type", "answer", "place"), ROUTES)
async def test_what_an_answer_echoes_is_masked(
    client_type: str, answer: Answer, place: Place
) -> None:
    with ScriptedProvider(answer) as provider:
        client = client_with(place, provider.base_url, client_type)
        shown = await fails(client.streaming_response([QUESTION]).message)
        request = provider.requests[0]
        assert SECRET in f"{request.target} {request.headers}"  # it was sent
    assert NEVER not in shown
    assert "***" in shown or "HTTP 302" in shown  # a redirect is told by its host alone


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("client_type", CLIENTS)
async def test_what_a_list_of_models_echoes_is_masked(client_type: str, place: Place) -> None:
    said = f"Incorrect API key provided: {SECRET}"
    echoes = [
        *refusals().values(),
        Answer.json({"error": {"message": filled(4096, said), "type": SECRET}}),
        Answer(say(f"<html>{said}")),
        Answer(say(filled(200, said))),
    ]
    for answer in echoes:
        with ScriptedProvider(answer) as provider:
            client = client_with(place, provider.base_url, client_type)
            assert NEVER not in await fails(client.list_models)


NO_HTTP = [
    f"SSH-2.0 {SECRET}\r\n".encode(),
    f"HTTP/1.1 {SECRET}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{SECRET}: \0{SECRET}\r\n\r\n".encode(),
    head("transfer-encoding: chunked") + f"{SECRET}\r\n".encode(),
    head(f"content-encoding: {SECRET}", "content-length: 5") + b"hello",
    head(f"content-length: {SECRET}") + b"hello",
]


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("client_type", CLIENTS)
async def test_what_is_no_http_is_masked(client_type: str, place: Place) -> None:
    for answer in NO_HTTP:
        async with RawServer(answer) as server:
            client = client_with(place, server.base_url, client_type)
            assert NEVER not in await fails(client.streaming_response([QUESTION]).message)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("client_type", CLIENTS)
def test_no_repr_shows_a_secret(client_type: str, place: Place) -> None:
    client = client_with(place, "https://host.test/v1", client_type)
    inner = client._client
    stream = client.streaming_response([QUESTION])
    parts = [client, inner, inner._target, inner._connector, stream]
    assert NEVER not in repr(parts)


@pytest.mark.parametrize("client_type", CLIENTS)
def test_a_refused_url_and_a_header_that_cannot_be_sent_are_told_without_their_secret(
    client_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CLIENTS[client_type].load()
    monkeypatch.setenv(entry.endpoint.key_variable, SECRET)
    urls = [f"https://else.test/v1?key={SECRET}", f"https://me:{quote(SECRET, '')}@else.test/v1"]
    for url in [] if entry.endpoint.open_server else urls:  # which takes any URL without a key
        with pytest.raises(MMSPError) as caught:
            AutoLLMClient("m", None, url, client_type)
        assert NEVER not in shown_by(caught.value)
    for headers in ({"Authorization": f"Bearer {SECRET}\n"}, {"Authorization": f"{SECRET}\u20ac"}):
        with pytest.raises(ValueError, match="'Authorization'") as refused:
            AutoLLMClient("m", SECRET, "https://else.test/v1", client_type, headers)
        assert NEVER not in shown_by(refused.value)
