"""A service account's key: what is one, where it leads, and that nobody is shown any of it."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmsp import ApiKeyRequiredError, AutoLLMClient, MMSPError
from mmsp.dialects import vertex
from mmsp.registry import credentials_for
from mmsp.request import Target
from mmsp.service_account import ServiceAccount
from mmsp.testing import Answer, ScriptedProvider, generate_content, say
from tests.accounts import TOKEN, account, pem, token, vertex_client
from tests.asking import QUESTION
from tests.calling import ask
from tests.test_secrets import NEVER, SECRET, events, fails, no_streams, refusals, shown_by

DEFAULT = "https://aiplatform.googleapis.com"
NOW = 1_800_000_000.0
ASSERTION = ServiceAccount(account()).assertion(vertex.GRANT, NOW)


def inner(key: str | None = None, base_url: str | None = None) -> Any:
    return AutoLLMClient("gemini-x", key, base_url, "google-genai")._client


# ---- where it leads


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("GEMINI_BASE_URL", raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", f"\n {account()}")
    return monkeypatch


def test_its_default_endpoint_is_vertex_ai(environment: pytest.MonkeyPatch) -> None:
    assert inner()._target.base_url == inner(account())._target.base_url == DEFAULT
    assert inner(None, f"{DEFAULT}/")._target.base_url == f"{DEFAULT}/"
    environment.setenv("GEMINI_BASE_URL", "https://proxy.test")
    assert inner()._target.base_url == inner(account())._target.base_url == "https://proxy.test"
    assert inner("a-key")._target.base_url == "https://proxy.test"


def test_a_plain_key_still_opens_the_gemini_api(environment: pytest.MonkeyPatch) -> None:
    client = inner("a-key")
    assert client._target.base_url == "https://generativelanguage.googleapis.com"
    assert client._target.headers == (("x-goog-api-key", "a-key"),)
    assert client._connector.authorization is None


def test_the_environments_key_goes_to_no_other_endpoint(environment: pytest.MonkeyPatch) -> None:
    for url in ("https://else.test", "https://generativelanguage.googleapis.com"):
        with pytest.raises(ApiKeyRequiredError, match=DEFAULT) as caught:
            inner(None, url)
        assert caught.value.base_url == url
    env = {"kind": "env", "key": "GEMINI_API_KEY"}
    assert credentials_for("google-genai") == {**env, "base_url": "GEMINI_BASE_URL"}
    assert credentials_for("google-genai", DEFAULT) == env
    environment.setenv("GEMINI_API_KEY", "a-key")
    needed = {"kind": "required", "key": "GEMINI_API_KEY", "base_url": "GEMINI_BASE_URL"}
    assert credentials_for("google-genai", DEFAULT) == needed


PLACE = "projects/a-project/locations/global"


@pytest.mark.parametrize(
    ("model", "base", "path"),
    [
        ("gemini-x", DEFAULT, f"/v1beta1/{PLACE}/publishers/google/models/gemini-x"),
        ("gemini-x", f"{DEFAULT}/v1/", f"/v1/{PLACE}/publishers/google/models/gemini-x"),
        ("meta/llama x", DEFAULT, f"/v1beta1/{PLACE}/publishers/meta/models/llama%20x"),
        ("publishers/a/models/b", DEFAULT, f"/v1beta1/{PLACE}/publishers/a/models/b"),
        ("models/7", DEFAULT, f"/v1beta1/{PLACE}/models/7"),
        ("projects/p/locations/l/endpoints/7", DEFAULT, "/v1beta1/projects/p/locations/l/endpoints/7"),
    ],
)  # fmt: skip
def test_a_model_stands_below_its_project_and_publisher(model: str, base: str, path: str) -> None:
    codec, message = inner(account()).codec, {**QUESTION}
    request = codec.encode(model, [message], {}, Target(base), client="C")
    assert request.url == f"https://aiplatform.googleapis.com{path}:streamGenerateContent?alt=sse"


def test_two_projects_do_not_meet() -> None:
    clients = [inner(account(project_id=name)) for name in ("one", "example.com:two/../x")]
    urls = [
        each.codec.encode("m", [QUESTION], {}, each._target, client="C").url for each in clients
    ]
    assert "/projects/one/locations/" in urls[0]
    assert "/projects/example.com:two%2F..%2Fx/locations/" in urls[1]
    assert type(clients[0]).codec is not clients[0].codec


# ---- what is none

PRIVATE = "".join(pem().split("\n")[3:5])  # from the middle of it

BROKEN: dict[str, tuple[str, str]] = {
    "no JSON": (account()[:-20], "no JSON object"),
    "nested too deeply": ('{"a":' + "[" * 100_000, "no JSON object"),
    "another type": (account(type="authorized_user"), "not service_account"),
    "no PEM": (account(private_key=PRIVATE), "no RSA key in PEM"),
    "half a PEM": (account(private_key=pem()[: len(pem()) // 2]), "no RSA key in PEM"),
    "another PEM": (account(private_key=pem().replace("PRIVATE", "PUBLIC")), "no RSA key in PEM"),
    "a token_uri that is none": (account("oauth2"), "token_uri is none"),
    "a token_uri of another kind": (account("file:///etc/passwd"), "token_uri is none"),
    "a token_uri with a line break": (account("https://a.test/\r\nx: y"), "token_uri is none"),
    **{
        f"{name} {how}": (
            json.dumps({**json.loads(account()), name: value}),
            f"has no {name}",
        )
        for name in ("project_id", "private_key", "client_email", "token_uri")
        for how, value in (("null", None), ("a number", 7), ("blank", " "))
    },
    "a token_uri missing": (account().replace("token_uri", "uri"), "has no token_uri"),
}


@pytest.mark.parametrize(("key", "said"), BROKEN.values(), ids=BROKEN)
def test_a_key_that_is_none_is_told_when_the_client_is_made(key: str, said: str) -> None:
    with pytest.raises(ApiKeyRequiredError, match=said) as caught:
        inner(key)
    error = caught.value
    assert (error.client, error.client_type) == ("GoogleGenAIClient", "google-genai")
    assert (error.api_key_env, error.base_url_env) == ("GEMINI_API_KEY", "GEMINI_BASE_URL")
    assert PRIVATE[:12] not in shown_by(error)
    assert PRIVATE[:12] not in shown_by(error.__context__)


def test_a_key_without_an_id_signs_too() -> None:
    assert ServiceAccount(account(private_key_id=None)).assertion(vertex.GRANT, NOW)


WITHOUT = """
import sys
sys.modules["google.auth"] = None  # as if it were not installed
import mmsp
mmsp.AutoLLMClient("gemini-x", "a-key", client_type="google-genai")
try:
    mmsp.AutoLLMClient("gemini-x", sys.stdin.read(), client_type="google-genai")
except ImportError as error:
    print(error)
"""


def test_without_google_auth_it_is_told_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], input=account(), capture_output=True, text=True, check=True
    )
    assert "pip install google-auth, or mmsp with its extra `vertex`" in done.stdout
    assert "BEGIN" not in done.stdout + done.stderr


def test_google_auth_is_loaded_for_such_a_key_alone() -> None:
    program = (
        "import sys, mmsp\n"
        "mmsp.AutoLLMClient('gemini-x', 'a-key', client_type='google-genai')\n"
        "print('google.auth' in sys.modules)\n"
        "mmsp.AutoLLMClient('gemini-x', sys.stdin.read(), client_type='google-genai')\n"
        "print('google.auth' in sys.modules, 'requests' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=account(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]


# ---- nobody is shown any of it


ANSWERS: dict[str, Answer] = refusals() | no_streams() | events("google-genai")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_token_that_an_answer_echoes_is_masked(answer: Answer) -> None:
    with ScriptedProvider(token(SECRET)) as tokens, ScriptedProvider(answer) as provider:
        client = vertex_client(provider, tokens, max_retries=0)
        shown = await fails(client.streaming_response([QUESTION]).message)
        assert SECRET in str(provider.requests[0].headers)
        assert NEVER not in shown
        assert "***" in shown or "HTTP 302" in shown


async def test_a_token_of_before_is_masked_too() -> None:
    """A provider may tell of the token that it was shown first."""
    said = Answer.error(401, f"no {SECRET}")
    with (
        ScriptedProvider(token(SECRET), token("another")) as tokens,
        ScriptedProvider(said, said) as provider,
    ):
        client = vertex_client(provider, tokens, max_retries=0)
        assert NEVER not in await fails(client.streaming_response([QUESTION]).message)
        assert len(tokens.requests) == 2


ECHOES: dict[str, Any] = {
    "a refusal": lambda it: Answer.error(400, f"bad assertion: {it}"),
    "a refusal with a reason": lambda it: Answer.json(
        {"error": "invalid_grant", "error_description": it}, status=400
    ),
    "a refusal that is cut": lambda it: Answer.error(400, "." * (4096 - 20) + it),
    "a 200": lambda it: Answer.json({"error": it}),
    "a page that is cut": lambda it: Answer(say(f"<html>{'.' * 160}{it}"), status=500),
    "another object": lambda it: Answer.json({"hello": it}),
    "no token": lambda it: Answer.json({"access_token": "", "assertion": it}),
}


@pytest.mark.parametrize("echoed", ["assertion", "key", "private key"])
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_what_the_tokens_server_echoes_is_masked(
    echo: Any, echoed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmsp.tokens.time.time", lambda: NOW)
    with ScriptedProvider() as tokens, ScriptedProvider() as provider:
        key = account(f"{tokens.origin}/token")
        secrets = {"assertion": ASSERTION, "key": key, "private key": json.dumps(pem())[1:-1]}
        tokens.answers = [echo(secrets[echoed])]
        client = AutoLLMClient("gemini-x", key, provider.origin, "google-genai", max_retries=0)
        shown = await fails(client.streaming_response([QUESTION]).message)
        for secret in (ASSERTION[:12], ASSERTION[-12:], PRIVATE[:12], pem().strip()[-40:-28]):
            assert secret not in shown
        assert ASSERTION.encode() in tokens.requests[0].body


async def test_nothing_of_it_is_traced_logged_or_represented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MMSP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("mmsp.tokens.time.time", lambda: NOW)
    caplog.set_level(logging.DEBUG)
    answer = Answer(say(generate_content.answer("All is well")))
    with ScriptedProvider(token()) as tokens, ScriptedProvider(answer) as provider:
        client = vertex_client(provider, tokens)
        stream = client.streaming_response([QUESTION], {"trace_id": "t"})
        await stream.message()
        made: Any = client._client
        authorization = made._connector.authorization
        parts = [
            client, made, made.codec, made._target, made._connector, stream, authorization,
            authorization._account, authorization._token, authorization._account.request("x" * 99),
        ]  # fmt: skip
        traced = [each.read_text("utf-8") for each in tmp_path.rglob("*") if each.is_file()]
    assert len(traced) == 2
    shown = " ".join([*map(repr, parts), *traced, caplog.text])
    for secret in (TOKEN[:8], ASSERTION[:30], PRIVATE[:20], "PRIVATE KEY", "x" * 99):
        assert secret not in shown


async def test_an_error_of_a_call_that_waited_is_its_own() -> None:
    """Each may be raised, kept and given a context without touching the others."""
    with ScriptedProvider(Answer.error(400, "no")) as tokens, ScriptedProvider() as provider:
        client = vertex_client(provider, tokens, max_retries=0)
        found = await asyncio.gather(*(ask(client) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(each, MMSPError) for each in found)
        assert len({id(each) for each in found}) == 3
