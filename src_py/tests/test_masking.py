"""What counts as a secret, and that none is left in a text, whole or cut."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmsp.masking import beginning, masked, secrets_in

KEY = "sk-very/secret"


@pytest.mark.parametrize(
    ("headers", "url", "secret"),
    [
        ([("Authorization", "Bearer the-token")], "", "the-token"),
        ([("authorization", "the-token")], "", "the-token"),
        ([("Proxy-Authorization", "Basic dXNlcjpw")], "", "dXNlcjpw"),
        ([("x-api-key", "the-token")], "", "the-token"),
        ([("X-Goog-Api-Key", "the-token")], "", "the-token"),
        ([("Ocp-Apim-Subscription-Key", "the-token")], "", "the-token"),
        ([("X-Auth-Token", "the-token")], "", "the-token"),
        ([("X-Client-Secret", "the-token")], "", "the-token"),
        ([("Cookie", "a=1; session=the-token; b=2")], "", "the-token"),
        ([("X-Whatever", "Bearer the-token")], "", "the-token"),
        ([], "https://host/v1?key=the-token", "the-token"),
        ([], "https://host/v1?a=b&access_token=the%2Ftoken", "the/token"),
        ([], "https://user:the-token@host/v1", "the-token"),
    ],
)
def test_what_looks_like_a_key_is_a_secret(
    headers: list[tuple[str, str]], url: str, secret: str
) -> None:
    found = secrets_in(KEY, url, headers)
    assert {secret, KEY} <= set(found)
    said = f"neither {secret} nor {KEY} nor {' '.join(value for _, value in headers)}"
    assert secret not in masked(said, found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Title", "my program"),
        ("User-Agent", "mine/1.0"),
        ("OpenAI-Organization", "org-1"),
        ("anthropic-version", "2023-06-01"),
        ("X-Max-Tokens", "1000"),
        ("X-Auth-Mode", "on"),
    ],
)
def test_what_an_error_needs_to_say_is_none(name: str, value: str) -> None:
    assert secrets_in("", "https://host/v1?api-version=2024-10-21", [(name, value)]) == ()


def test_a_secret_is_found_in_every_form_in_which_it_may_be_echoed() -> None:
    key = 'sk/a+"b'
    found = secrets_in(key, "", ())
    for form in (key, json.dumps(key), json.dumps(key).replace("/", "\\/"), quote(key, safe="")):
        assert masked(f"<{form}>", found).strip('<">') == "***"


def test_a_secret_that_holds_another_goes_first() -> None:
    found = secrets_in("secret", "", [("authorization", "Bearer secret-and-more")])
    assert masked("Bearer secret-and-more", found) == "***"


def test_everything_in_an_object_is_masked_and_what_is_too_deep_is_left_out() -> None:
    found = (KEY,)
    assert masked({KEY: [f"a {KEY}", {"b": (1, None)}]}, found) == {
        "***": ["a ***", {"b": (1, None)}]
    }
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert masked(deep, found) is None
    while deep:  # one by one, so that letting go of it does not overflow
        deep = deep[0]  # type: ignore[assignment]


@given(
    st.integers(0, 400), st.integers(0, 400), st.sampled_from([KEY, "k" * 150, "sk-" + "a" * 60])
)
def test_a_secret_that_is_cut_does_not_show_its_beginning(
    before: int, kept: int, secret: str
) -> None:
    """Wherever the cut is: ours at 200 characters, or that of a body that broke off."""
    text = "é" * before + f" {secret}" * 3
    shown = beginning(text.encode()[: before * 2 + kept], (secret,))
    assert len(shown) <= 200
    assert secret[:4] not in shown.replace("***", "")


@given(st.text(max_size=500), st.text(min_size=1, max_size=20))
def test_a_short_beginning_without_a_secret_is_the_text(text: str, secret: str) -> None:
    shown = beginning(text.encode(), (secret,), 500)
    if "*" not in shown:
        assert shown == text
