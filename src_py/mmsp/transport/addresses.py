"""Which addresses are the public Internet's, and which belong to somebody's own network.

Also in disguise: an IPv4 address inside an IPv6 one (mapped, 6to4, NAT64, Teredo) is what it stands for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

__all__ = ["PRIVATE", "is_public"]

PRIVATE = "an address of a private network"  # what is said of all others

_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: str) -> bool:
    """Whether `address`, as `getaddrinfo` writes it, is one that anybody may be sent to."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return all(_is_public(each) for each in (found, *_inside(found)))


def _is_public(address: _Address) -> bool:
    is_site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not is_site_local


def _inside(address: _Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if any(address in network for network in (*_NAT64, _IPV4_COMPATIBLE)):
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
