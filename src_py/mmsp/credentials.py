"""Which key goes to which endpoint.

A key that stands in the environment was meant for one endpoint; it is never sent to a URL that a program
names. An empty string counts as not given.

    key given   URL given                     key used           endpoint used
    yes         yes                           the given key      the given URL
    yes         no                            the given key      the URL variable, else the default
    no          no                            the key variable   the URL variable, else the default
    no          the default endpoint          the key variable   the given URL
    no          any other                     refused
    no          any, on an open server        none               the given URL
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from .dialects.endpoint import Endpoint
from .errors import ApiKeyRequiredError
from .masking import masked, secrets_in

__all__ = ["environment_headers", "needed_credentials", "resolve_credentials", "same_endpoint"]


def resolve_credentials(
    endpoint: Endpoint, api_key: str | None, base_url: str | None, *, client: str, client_type: str
) -> tuple[str, str]:
    """The key (`""` for none) and the base URL to use. Raises `ApiKeyRequiredError`.

    A service account's key has a default endpoint of its own, which then is the one meant above.
    """
    url = (base_url or "").strip()
    try:
        urlsplit(url)
    except ValueError:
        raise ValueError(f"{client}: base_url is no URL: write it as https://host/v1") from None
    endpoint = endpoint.for_key(api_key or os.environ.get(endpoint.key_variable, ""))
    used_url = url or os.environ.get(endpoint.url_variable, "").strip() or endpoint.default_url
    if api_key:
        return api_key, used_url
    if url and endpoint.open_server:
        return endpoint.placeholder_key, used_url
    if url and not same_endpoint(url, endpoint.default_url):
        raise ApiKeyRequiredError(
            f"The key in {endpoint.key_variable} is reserved for {endpoint.default_url}: "
            f"give api_key=… for the endpoint you named.",
            client=client,
            client_type=client_type,
            api_key_env=endpoint.key_variable,
            base_url_env=endpoint.url_variable,
            base_url=masked(url, secrets_in("", url, ())),
        )
    key = os.environ.get(endpoint.key_variable, "") or endpoint.placeholder_key
    if not key and not endpoint.open_server:
        raise ApiKeyRequiredError(
            f"No API key: give api_key=… or set {endpoint.key_variable}.",
            client=client,
            client_type=client_type,
            api_key_env=endpoint.key_variable,
            base_url_env=endpoint.url_variable,
        )
    return key, used_url


def environment_headers(endpoint: Endpoint, base_url: str | None) -> tuple[tuple[str, str], ...]:
    """The headers that the environment adds to every request, if no other endpoint was named.

    What stands there about the key never replaces the key.
    """
    url = (base_url or "").strip()
    if url and not same_endpoint(url, endpoint.default_url):
        return ()
    named = [(name, os.environ.get(key, "")) for key, name in endpoint.own_headers.items()]
    for line in os.environ.get(endpoint.header_lines, "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() != "authorization":
            named.append((name.strip(), value.strip()))
    return tuple((name, value) for name, value in named if value)


def needed_credentials(endpoint: Endpoint, base_url: str | None = None) -> dict[str, Any]:
    """What a client of `endpoint` would do without a key being given, for pages that ask for one.

    `{"kind": "env", "key": …}` with the variable whose key it would use, and `"base_url": …` with that of
    the URL when none was given; `{"kind": "keyless"}`; or `{"kind": "required"}` with the two variables
    that could have named one.
    """
    url = (base_url or "").strip()
    key_variable, url_variable = endpoint.key_variable, endpoint.url_variable
    endpoint = endpoint.for_key(os.environ.get(key_variable, ""))
    theirs = not url or (same_endpoint(url, endpoint.default_url) and not endpoint.open_server)
    if theirs and os.environ.get(key_variable):
        return {"kind": "env", "key": key_variable} | ({} if url else {"base_url": url_variable})
    if endpoint.open_server:
        return {"kind": "keyless"}
    return {"kind": "required", "key": key_variable, "base_url": url_variable}


def same_endpoint(one: str, other: str) -> bool:
    """Scheme and host without case, the path without trailing slashes, the rest as written.

    What is no URL, or holds what a URL does not, equals nothing.
    """
    found = _normal(one.strip()), _normal(other.strip())
    return found[0] is not None and found[0] == found[1]


def _normal(url: str) -> tuple[str, ...] | None:
    if "://" not in url or not url.isprintable() or url.endswith(("?", "#")):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return (
        parts.scheme.lower(),
        parts.netloc.lower(),
        parts.path.rstrip("/"),
        parts.query,
        parts.fragment,
    )
