"""Public addresses and all the others, also in disguise."""

from __future__ import annotations

import pytest

from mmsp.transport.addresses import is_public

PRIVATE = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1",
    "198.18.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1",
    "2001:db8::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "2002:7f00:1::",
    "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1",
    "2001:0:a9fe:a9fe::", "fec0::1", "2001:db8::8.8.8.8", "0.1.2.3", "192.0.0.1",
)  # fmt: skip
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_a_private_network_is_told(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_told(address: str) -> None:
    assert is_public(address)
