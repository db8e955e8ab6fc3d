"""Which addresses http_fetch may connect to: global unicast, by our own table."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.tools.fetch import is_public

pytestmark = pytest.mark.rule(22)


def words(text: str) -> list[str]:
    """Return the words of a table that is easier to read without quotes."""
    return text.split()


# --- addresses ------------------------------------------------------------------------------

NOT_PUBLIC = words("""
::ffff:127.0.0.1 ::ffff:7f00:1 ::127.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1 ::5efe:10.0.0.1
2001:0:53aa:64c:0:5efe:7f00:1 2a00:1450::5efe:a00:1 2a00:1450::200:5efe:a00:1 ::ffff:8.8.8.8
2001:0:4136:e378:8000:63bf:80ff:fffe
64:ff9b::a9fe:a9fe 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::1 64:ff9b:1::7f00:1 2002:7f00:1::
2002:808:808::1
100.64.0.1 100.127.255.255 192.0.0.9 192.0.0.170 198.18.0.1 198.19.255.255 224.0.0.1 239.255.255.255
ff0e::1 ff02::1 240.0.0.1 0.0.0.0 0.1.2.3 255.255.255.255 5f00::1 3fff::1 168.63.129.16 fd00:ec2::254
fc00::1 127.0.0.1 127.255.255.255 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254
192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 2001:db8::1 2001:2::1 2001:10::1 2001:20::1
:: ::1 fe80::1 fe80::1%eth0 fec0::1 100::1 4000::1 e000::1 2a00:1450:4001::200e%eth0
""")

PUBLIC = words("""
8.8.8.8 1.1.1.1 93.184.215.14 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255
128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0
198.17.255.255 198.20.0.0 223.255.255.255 168.63.129.15 168.63.129.17 2001:4860:4860::8888
2606:4700:4700::1111 2a00:1450:4001::200e 2003::1 2001:200::1 3ffe::1 64:ff9b::808:808
""")


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_what_is_not_global_unicast_is_not_public(text: str) -> None:
    """E01, E02, E03: wrapped, translated, shared, reserved and multicast addresses, on every Python."""
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_the_rest_is_public(text: str) -> None:
    """E02, E03: up to the borders of each block; NAT64 counts as the address it carries."""
    assert is_public(ip_address(text))


@given(st.ip_addresses())
def test_nothing_private_passes_in_any_wrapping(address: IPv4Address | IPv6Address) -> None:
    """E01, E02: an IPv4 address that is not public is not public inside IPv6 either."""
    if isinstance(address, IPv6Address) or is_public(address):
        return
    number = int(address)
    for prefix in (0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96, 0x5EFE << 32, 0x20010DB8 << 96):
        assert not is_public(IPv6Address(prefix | number))
    assert not is_public(IPv6Address(0x2002 << 112 | number << 80))


@given(st.ip_addresses())
def test_public_is_never_what_the_library_calls_private(address: IPv4Address | IPv6Address) -> None:
    """E03: our table is stricter than the standard library's, wherever that one is right."""
    if is_public(address) and address not in _NAT64:
        assert not address.is_private
        assert not address.is_multicast
        assert not address.is_reserved


_NAT64 = ip_network("64:ff9b::/96")  # reserved, says the library, for translation
