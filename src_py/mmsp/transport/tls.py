"""TLS contexts: the system's certificates, made once and made anew when the environment names others."""

from __future__ import annotations

import os
import ssl
from typing import Any

__all__ = ["checked_context", "default_context"]

_contexts: dict[tuple[str | None, str | None], ssl.SSLContext] = {}


def default_context() -> ssl.SSLContext:
    """The context used when the caller gives none. OpenSSL reads SSL_CERT_FILE and SSL_CERT_DIR itself.

    Loading the system's bundle takes 10 to 30 ms, hence once. Only HTTP/1.1 is offered: an HTTP/2
    stream that is closed early does not close its connection.
    """
    key = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = _contexts.get(key)
    if context is None:
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        _contexts[key] = context
    return context


def checked_context(context: Any) -> ssl.SSLContext | None:
    """A client's context or none. Raises `TypeError` and `ValueError`."""
    if context is None:
        return None
    if not isinstance(context, ssl.SSLContext):
        raise TypeError(
            "ssl_context is an ssl.SSLContext, as ssl.create_default_context() makes it, "
            f"not {type(context).__name__}"
        )
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("ssl_context is a server's: make it with ssl.create_default_context()")
    return context
