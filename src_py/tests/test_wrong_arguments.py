"""Whatever is given to a public name is taken, or refused at once by an error that names it.

The table is over `mmsp.__all__`, and the arguments of a client over the registry of clients: a new name
or client cannot come without them.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import ssl
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mmsp
from mmsp import (
    AbortError,
    AbortSignal,
    ApiKeyRequiredError,
    AutoLLMClient,
    Limits,
    MMSPError,
    RoutingError,
    Stream,
    TextStream,
    Timeouts,
    UpstreamError,
    WireFormatError,
)
from mmsp.base_client import LLMClient
from mmsp.registry import CLIENTS, credentials_for
from tests.asking import QUESTION

HUGE = 10**400
ENDLESS = 10**5000  # so long that Python does not write it out


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


# What has no repr, so that Hypothesis cannot show it.
UNSHOWN: dict[str, Any] = {"endless": ENDLESS, "deep": nested(100_000), "key": {ENDLESS: 1}}


class Word(str, enum.Enum):  # noqa: UP042 (its format is not its value, that of a StrEnum is)
    AUTO = "auto"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([HUGE, -HUGE, 0, -1]),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.sampled_from(["", " ", "\ud800", "false", "3", "a\nb", "https://[", "text.done"]),
    st.binary(max_size=5),
    st.sampled_from([Word.AUTO, object(), object, len, 1j, bytearray(b"a"), range(3)]),
)
KEYS = st.one_of(st.text(max_size=5), st.integers(), st.sampled_from([HUGE, "\ud800", None]))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=5,
)

PARAMETERS = [
    name for name in inspect.signature(AutoLLMClient).parameters if name not in ("self", "_")
]
ARGUMENT_ERRORS = (TypeError, ValueError, RoutingError, ApiKeyRequiredError)


def refusal(call: Callable[..., Any], *given: Any, **named: Any) -> Exception | None:
    """The error of a call; None if it takes what it is given."""
    try:
        call(*given, **named)
    except Exception as error:
        return error
    return None


def make(**settings: Any) -> AutoLLMClient:
    arguments = {"model": "m", "api_key": "k", "client_type": "openai-chat", **settings}
    return AutoLLMClient(**arguments)


# ---- clients


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize("parameter", PARAMETERS)
@given(value=ANYTHING)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(value=0)
@example(value=5)
@example(value="false")
@example(value="\ud800")
def test_a_client_takes_an_argument_or_names_it_in_its_refusal(
    client_type: str, parameter: str, value: Any
) -> None:
    check_argument(client_type, parameter, value)


@pytest.mark.parametrize("client_type", CLIENTS)
@pytest.mark.parametrize("unshown", UNSHOWN)
def test_a_client_refuses_what_cannot_even_be_shown(client_type: str, unshown: str) -> None:
    for parameter in PARAMETERS:
        check_argument(client_type, parameter, UNSHOWN[unshown])


def check_argument(client_type: str, parameter: str, value: Any) -> None:
    error = refusal(make, **{"client_type": client_type, parameter: value})
    if error is not None:
        assert type(error) in ARGUMENT_ERRORS, repr(error)
        said = str(error).replace("base URL", "base_url").replace("client type", "client_type")
        assert parameter in said or (parameter == "client_type" and "CLIENT_TYPE" in said)
        assert len(str(error)) < 1000


@pytest.mark.parametrize("client_type", CLIENTS)
@given(value=ANYTHING)
@settings(max_examples=25)
@example(value=5)
def test_a_client_without_the_router_refuses_the_same(client_type: str, value: Any) -> None:
    kind = CLIENTS[client_type].load()
    arguments = [each for each in inspect.signature(LLMClient).parameters if each != "self"]
    for parameter in arguments:
        error = refusal(kind, **{"model": "m", "api_key": "k", parameter: value})
        assert error is None or type(error) in ARGUMENT_ERRORS, (parameter, repr(error))


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"timeouts": 30}, TypeError, r"timeouts is an mmsp\.Timeouts, as Timeouts\(total=30\), not 30"),
    ({"timeouts": 0}, TypeError, "timeouts is an mmsp.Timeouts"),
    ({"timeouts": {"total": 3}}, TypeError, "not a dict"),
    ({"timeouts": Limits()}, TypeError, "not a Limits"),
    ({"limits": 5}, TypeError, "limits is an mmsp.Limits"),
    ({"limits": Timeouts()}, TypeError, "not a Timeouts"),
    ({"ssl_context": True}, TypeError, r"ssl_context is an ssl\.SSLContext.*, not bool"),
    ({"ssl_context": "ca.pem"}, TypeError, r"ssl\.create_default_context\(\)"),
    ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, ValueError, "ssl_context is a server's"),
    ({"allow_private_image_urls": "false"}, TypeError, "_urls is True or False, not 'false'"),
    ({"allow_private_image_urls": 1}, TypeError, "True or False, not 1"),
    ({"allow_private_image_urls": None}, TypeError, "True or False, not None"),
    ({"model": 5}, ValueError, "model is the id of a model, not 5"),
    ({"model": 5, "client_type": None}, ValueError, "model is the id of a model, not 5"),
    ({"model": "\ud800"}, ValueError, "model holds half a character"),
    ({"client_type": 5}, TypeError, "client_type is a string, not int"),
    ({"client_type": 0}, TypeError, "client_type is a string, not int"),
    ({"client_type": []}, TypeError, "client_type is a string, not list"),
    ({"max_retries": "2"}, ValueError, "max_retries is a number of further attempts, 0 or more, not '2'"),
    ({"max_retries": None}, ValueError, "not None"),
    ({"max_retries": -HUGE}, ValueError, "not so large an integer"),
    ({"default_headers": [("a", "b")]}, TypeError, "default_headers is a mapping of strings, not list"),
    ({"default_headers": "a: b"}, TypeError, "not str"),
    ({"default_headers": {"a": ["secret"]}}, TypeError, r"default_headers\['a'\] is no string"),
    ({"default_headers": {b"a": "secret"}}, TypeError, r"default_headers\[a bytes\] is no string"),
    ({"base_url": "https://api.test/\ud800"}, ValueError, "base_url holds half a character"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "kind", "said"), WRONG, ids=lambda each: str(each)[:40])
def test_a_wrong_argument_is_told_with_what_is_wanted(
    settings: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        make(**settings)
    assert type(caught.value) is kind
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", list(Timeouts.__dataclass_fields__))
@pytest.mark.parametrize(
    "value",
    [HUGE, -HUGE, ENDLESS, float("nan"), -1, 0, True, "3", [3], 1j],
    ids=lambda value: type(value).__name__,
)
def test_a_time_out_is_a_number_that_can_be_waited_for(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number"):
        Timeouts(**{name: value})


@pytest.mark.parametrize("name", list(Limits.__dataclass_fields__))
@given(value=ANYTHING)
@example(value=HUGE)
@example(value=float("nan"))
@example(value=None)
def test_a_limit_is_a_number_above_zero_or_refused_by_name(name: str, value: Any) -> None:
    error = refusal(Limits, **{name: value})
    good = not isinstance(value, bool) and isinstance(value, int | float) and value > 0
    if good and error is None:
        assert value <= sys.float_info.max or value == float("inf")
    else:
        assert type(error) is ValueError
        assert f"{name} must be a" in str(error)


def test_words_of_an_enum_are_taken_as_what_they_are() -> None:
    class Mine(str, enum.Enum):  # noqa: UP042
        KEY, TYPE, NAME, MODEL = "a-key", "openai-chat", "x-name", "some-model"

    client = AutoLLMClient(
        Mine.MODEL, Mine.KEY, None, Mine.TYPE, default_headers={Mine.NAME: Mine.KEY}
    )
    request = client._client._target.request("GET", "/")
    assert client.model == "some-model"
    assert ("Authorization", "Bearer a-key") in request.headers
    assert ("x-name", "a-key") in request.headers
    assert {type(part) for header in request.headers for part in header} == {str}


def test_so_many_retries_are_only_retries() -> None:
    connector = make(max_retries=HUGE)._client._connector
    busy = UpstreamError("busy", client="C", status=503, retryable=True)
    waits = [connector.wait_before_retry(busy, attempt, answered=True) for attempt in (5, 5000)]
    assert all(wait is not None and 6 <= wait <= 8 for wait in waits)


# ---- everything else that is public

Checked = Callable[[Any], object]


def _messages(value: Any) -> None:
    make().streaming_response(value)


def _config(value: Any) -> None:
    make().streaming_response([QUESTION], value)


def _any(value: Any) -> None:
    AbortSignal.any(value)


def _list(value: Any) -> None:
    asyncio.run(make().list_models(value))


# For each public name: what is done with a wrong value, and the errors that may come of it.
USES: dict[str, list[tuple[Checked, tuple[type[Exception], ...]]]] = {
    "AbortSignal": [
        (AbortSignal.timeout, (TypeError, ValueError)),
        (_any, (TypeError,)),
        (lambda value: AbortSignal().abort(value), ()),
        (lambda value: AbortSignal().on_abort(value), (TypeError,)),
    ],
    "AbortError": [(AbortError, ())],
    "AutoLLMClient": [
        (_messages, (MMSPError,)),
        (_config, (MMSPError,)),
        (lambda value: make().streaming_response([value]), (MMSPError,)),
        (lambda value: make().streaming_response([QUESTION], {"tools": value}), (MMSPError,)),
        (lambda value: make().streaming_response([QUESTION], None, value), (TypeError,)),
        (lambda value: make().streaming_response_stateful(value), (MMSPError,)),
        (lambda value: make().streaming_response_stateful(QUESTION, value), (MMSPError,)),
        (lambda value: make().set_history(value), (MMSPError,)),
    ],
    "Limits": [(lambda value: Limits(head_bytes=value), (ValueError,))],
    "Timeouts": [(lambda value: Timeouts(total=value), (ValueError,))],
    "Stream": [
        (lambda value: Stream(value, None, assembler=value, decoder=value, prepare=value), (TypeError,)),
        (lambda value: make().streaming_response([QUESTION]).abort(value), ()),
    ],
    "TextStream": [(TextStream, (TypeError,))],
    "dumps": [(mmsp.dumps, (WireFormatError,))],
    "list_supported_models": [(mmsp.list_supported_models, (MMSPError,))],
    "loads": [(mmsp.loads, (WireFormatError,))],
}  # fmt: skip
PLAIN_DICTS = {
    "ModelPricing",
    "SupportedModel",
    "UniConfig",
    "UniEvent",
    "UniMessage",
    "UsageMetadata",
}
ERRORS = {
    name
    for name in mmsp.__all__
    if isinstance(kind := getattr(mmsp, name), type) and issubclass(kind, MMSPError)
}


def test_every_public_name_is_in_the_table() -> None:
    assert set(USES) | PLAIN_DICTS | ERRORS == set(mmsp.__all__)


@pytest.mark.parametrize("name", USES)
@given(value=ANYTHING)
@example(value=None)
@example(value=[[]])
@example(value=HUGE)
@example(value=float("nan"))
@settings(max_examples=60)
def test_what_is_public_takes_a_value_or_has_an_error_of_its_own(name: str, value: Any) -> None:
    check_uses(name, value)


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("unshown", UNSHOWN)
def test_what_is_public_refuses_what_cannot_even_be_shown(name: str, unshown: str) -> None:
    check_uses(name, UNSHOWN[unshown])


def check_uses(name: str, value: Any) -> None:
    for use, errors in USES[name]:
        error = refusal(use, value)
        if error is not None:
            assert isinstance(error, errors), (name, repr(error)[:300])
            assert not isinstance(error, UnicodeError | OverflowError | RecursionError)


@pytest.mark.parametrize("value", [5, "x", [], asyncio.Event], ids=str)
async def test_the_list_of_models_refuses_what_is_no_signal(value: Any) -> None:
    with pytest.raises(TypeError, match=r"signal is an mmsp\.AbortSignal"):
        await make().list_models(value)


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_may_say_anything(name: str) -> None:
    kind = getattr(mmsp, name)
    fields = [
        each.name
        for each in inspect.signature(kind.__init__).parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    values: list[Any] = [None, HUGE, "\ud800", [[]]]
    for value in values:
        error = kind("said", **dict.fromkeys(fields, value))
        assert (str(error), repr(error).startswith(name)) == ("said", True)


@pytest.mark.parametrize("value", [5, "x", None, [], int])
async def test_a_stream_is_not_thrown_what_is_no_exception(value: Any) -> None:
    stream = make().streaming_response([QUESTION])
    with pytest.raises(TypeError, match="athrow takes an exception"):
        await stream.athrow(value)
    assert stream.outcome is None


def test_a_stream_that_could_not_be_made_leaves_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    stream: Any = Stream
    for arguments in ((), (5, None)):
        assert isinstance(refusal(stream, *arguments), TypeError)
    assert isinstance(refusal(make, limits=5), TypeError)
    assert complaints == []


@pytest.mark.parametrize("value", [5, [], 0, ENDLESS], ids=["5", "list", "0", "endless"])
def test_credentials_are_asked_for_by_a_name(value: Any) -> None:
    with pytest.raises(TypeError, match="client_type is a string"):
        credentials_for(value)


def test_a_mapping_is_as_good_as_a_dict() -> None:
    class Headers(Mapping[str, str]):
        def __getitem__(self, key: str) -> str:
            return "b"

        def __iter__(self) -> Any:
            return iter(["x-a"])

        def __len__(self) -> int:
            return 1

    assert ("x-a", "b") in make(default_headers=Headers())._client._target.overrides
