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
from urllib.parse import urlsplit

from .dialects.endpoint import Endpoint
from .errors import ApiKeyRequiredError
from .masking import masked, secrets_in

__all__ = ["resolve_credentials", "same_endpoint"]


def resolve_credentials(
    endpoint: Endpoint, api_key: str | None, base_url: str | None, *, client: str, client_type: str
) -> tuple[str, str]:
    """The key (`""` for none) and the base URL to use. Raises `ApiKeyRequiredError`."""
    url = (base_url or "").strip()
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


def same_endpoint(one: str, other: str) -> bool:
    """Scheme and host without case, the path without trailing slashes, the rest as written."""
    return "://" in one and "://" in other and _normal(one) == _normal(other)


def _normal(url: str) -> tuple[str, ...]:
    parts = urlsplit(url.strip())
    return (
        parts.scheme.lower(),
        parts.netloc.lower(),
        parts.path.rstrip("/"),
        parts.query,
        parts.fragment,
    )
