"""Where a server listens. Its sockets are bound before anything else begins, so that what is wrong with
the address or the certificate is told to whoever starts it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl

__all__ = ["base_url", "bind", "check_certificate", "raise_descriptor_limit"]

_BACKLOG = 2048


def bind(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`; port 0 is any free one, the same for all.

    Raises `OSError`, whose text says where it was to listen and why it cannot.
    """
    listeners: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
        for family, address in addresses:
            at = listeners[0].getsockname()[1] if listeners else port
            listeners.append(_listener(family, (address[0], at, *address[2:]), len(addresses) == 1))
    except (OSError, OverflowError) as error:
        for each in listeners:
            each.close()
        why = getattr(error, "strerror", None) or str(error)
        raise OSError(f"cannot listen on {_at(host)}:{port}: {why}") from None
    return listeners


def _listener(family: int, address: tuple[object, ...], alone: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not alone:  # else its twin for IPv4 finds the port taken
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def base_url(host: str, port: int, *, tls: bool = False) -> str:
    """What callers' clients are given: `http://host:port/v1`."""
    return f"{'https' if tls else 'http'}://{_at(host)}:{port}/v1"


def _at(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def check_certificate(certfile: str | None, keyfile: str | None) -> None:
    """Raises `OSError` for a certificate or a key that cannot be used."""
    if certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for path in (certfile, keyfile):
        if path is not None and not os.access(path, os.R_OK):
            is_ = "cannot be read" if os.path.exists(path) else "does not exist"
            raise OSError(f"the file {path} {is_}")
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise OSError(f"the certificate {certfile} cannot be used: {why}") from None


def _no_password() -> str:
    raise ValueError("its key has a password, and nobody is asked for one")


def raise_descriptor_limit() -> None:
    """To what the system allows: each stream holds two descriptors, and the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
