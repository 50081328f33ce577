"""`ServiceAccount`: a key that is never sent: it signs assertions, for which a server gives tokens.

Signing is google-auth's, which is imported when such a key is first given. Fetching the token is ours
(`mmsp.tokens`): a token that another library fetches cannot be stopped.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import msgspec

from .dialects.endpoint import Endpoint, Grant
from .errors import ApiKeyRequiredError
from .request import HttpRequest

__all__ = ["ServiceAccount", "account_of"]

_FIELDS = ("project_id", "private_key", "client_email", "token_uri")
_GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_HEADERS = (
    ("Content-Type", "application/x-www-form-urlencoded"),
    ("Accept", "application/json"),
)


class ServiceAccount:
    """What the text of a key file says. No error and no `repr` shows any of the key.

    Raises `ValueError` for a text that is no such key, `ImportError` without google-auth.
    """

    def __init__(self, text: str) -> None:
        fields = _fields(text)
        self.project: str = fields["project_id"]
        self.private_key: str = fields["private_key"]
        self._email: str = fields["client_email"]
        self._token_uri: str = fields["token_uri"]
        self._signer = _signer(self.private_key, fields.get("private_key_id"))
        self.request("")  # raises for a token_uri that leads nowhere

    def assertion(self, grant: Grant, now: float) -> str:
        """What is shown for a token: who we are, signed at `now` (seconds since 1970)."""
        claims = {
            "iss": self._email,
            "aud": grant.audience,
            "scope": grant.scope,
            "iat": int(now),
            "exp": int(now) + grant.lifetime,
        }
        signed: bytes = _google("jwt").encode(self._signer, claims)
        return signed.decode("ascii")

    def request(self, assertion: str) -> HttpRequest:
        """The request for a token."""
        form = urlencode({"grant_type": _GRANT_TYPE, "assertion": assertion})
        try:
            return HttpRequest("POST", self._token_uri, _HEADERS, form.encode())
        except ValueError as error:
            raise ValueError(f"its token_uri is none: {error}") from None

    def __repr__(self) -> str:
        return f"<ServiceAccount of {self.project!r}>"


def account_of(
    key: str, endpoint: Endpoint, *, client: str, client_type: str
) -> ServiceAccount | None:
    """The account whose key it is, where `endpoint` wants one. Raises `ApiKeyRequiredError`."""
    if endpoint.grant is None:
        return None
    try:
        return ServiceAccount(key)
    except ValueError as error:
        raise ApiKeyRequiredError(
            f"{client} cannot use this service account's key: {error}",
            client=client,
            client_type=client_type,
            api_key_env=endpoint.key_variable,
            base_url_env=endpoint.url_variable,
        ) from None


def _fields(text: str) -> dict[str, Any]:
    found = _decoded(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object: give the whole text of the key file")
    kind = found.get("type", "service_account")
    if kind != "service_account":
        raise ValueError("its type is not service_account: give the key file of a service account")
    for name in _FIELDS:
        if not isinstance(found.get(name), str) or not found[name].strip():
            raise ValueError(f"it has no {name}: give the whole text of the key file")
    return found


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def _signer(private_key: str, key_id: Any) -> Any:
    crypt = _google("crypt")
    signer = None
    try:
        signer = crypt.RSASigner.from_string(private_key, key_id)
    except Exception:  # whatever its libraries raise, for a text that is no key
        pass
    if signer is None:
        raise ValueError("its private_key is no RSA key in PEM: give the key file as it came")
    return signer


def _google(name: str) -> Any:
    try:
        return import_module(f"google.auth.{name}")
    except ImportError:
        raise ImportError(
            "A service account's key needs google-auth, which is not installed: "
            "pip install google-auth, or mmsp with its extra `vertex`",
            name="google.auth",
        ) from None
