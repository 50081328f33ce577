"""TLS contexts: the system's certificates, made once and made anew when the environment names others."""

from __future__ import annotations

import os
import ssl
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["checked_context", "default_context", "without_identity"]

_contexts: dict[tuple[str | None, str | None], ssl.SSLContext] = {}
_nameless: WeakKeyDictionary[ssl.SSLContext, ssl.SSLContext] = WeakKeyDictionary()


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


def without_identity(context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """A context that trusts whom `context` trusts and shows no certificate of its own.

    For hosts that a stranger may have named. Trust that is looked up in folders when it is needed
    (`capath`) cannot be copied; the system's is there in any case.
    """
    if context is None:
        return None
    if context not in _nameless:
        _nameless[context] = _nameless_of(context)
    return _nameless[context]


def _nameless_of(context: ssl.SSLContext) -> ssl.SSLContext:
    plain = ssl.create_default_context()
    if trusted := context.get_ca_certs(binary_form=True):
        plain.load_verify_locations(cadata=b"".join(trusted))
    plain.check_hostname = context.check_hostname
    plain.verify_mode = context.verify_mode
    plain.verify_flags = context.verify_flags
    plain.minimum_version = context.minimum_version
    plain.maximum_version = context.maximum_version
    plain.set_alpn_protocols(["http/1.1"])
    return plain


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
