"""A service account for tests: a key file's text with a real RSA key, and a server of its tokens."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from mmsp import AutoLLMClient
from mmsp.testing import Answer, ScriptedProvider
from mmsp.testing.records import ReceivedRequest

EMAIL = "robot@a-project.iam.gserviceaccount.com"
PROJECT = "a-project"
TOKEN = "ya29.a-token-that-is-secret"


@functools.cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@functools.cache
def pem() -> str:
    return (
        rsa_key()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def account(token_uri: str = "https://oauth2.googleapis.com/token", **fields: Any) -> str:
    """The text of a key file; a field that is None is left out."""
    whole = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "kid-1",
        "private_key": pem(),
        "client_email": EMAIL,
        "token_uri": token_uri,
    } | fields
    return json.dumps({name: value for name, value in whole.items() if value is not None})


def token(value: str = TOKEN, expires_in: Any = 3600) -> Answer:
    return Answer.json({"access_token": value, "expires_in": expires_in, "token_type": "Bearer"})


def vertex_client(
    provider: ScriptedProvider, tokens: ScriptedProvider, model: str = "gemini-x", **settings: Any
) -> AutoLLMClient:
    if tokens.manners.tls:
        settings.setdefault("ssl_context", tokens.ssl_context)
    key = account(f"{tokens.origin}/token")
    return AutoLLMClient(model, key, provider.origin, "google-genai", **settings)


def claims_of(request: ReceivedRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and claims of the assertion in a request, whose signature is looked at."""
    form = parse_qs(request.body.decode(), strict_parsing=True)
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    (assertion,) = form["assertion"]
    signed, _, signature = assertion.rpartition(".")
    rsa_key().public_key().verify(
        _decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    header, claims = (json.loads(_decoded(part)) for part in signed.split("."))
    return header, claims


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
