"""Which addresses are on the public internet, by our own table.

Rule: an address is public if it is listed as such, not if it is missing from a list of private ranges.
The ``is_private`` and ``is_global`` of the standard library change with the Python version and let
multicast, shared and translated addresses through.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias, cast

import attrs

from hango.threads import Threads

IPAddress: TypeAlias = IPv4Address | IPv6Address

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""From an ASCII host name to its addresses, best first; raises OSError when there are none."""

# https://www.iana.org/assignments/iana-ipv4-special-registry, all of it that is not the public net
_NOT_PUBLIC_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata here
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's platform, reachable from every machine in it
            "169.254.0.0/16",  # link-local, with the clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
# The only block global unicast is assigned from, and what in it is something else:
# https://www.iana.org/assignments/ipv6-address-space
_GLOBAL_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, carries an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
# Translation by the network's own gateway (RFC 6052); where it is in use, it is the only way to the
# IPv4 internet, so it counts as the address that it carries.
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # interface ids that carry an IPv4 address (RFC 5214)


def is_public(address: IPAddress) -> bool:
    """Return whether *address* is global unicast, and embeds no address that is not."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return False
    return address in _GLOBAL_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def read_addresses(texts: Sequence[str]) -> tuple[IPAddress, ...]:
    """Parse the addresses a resolver returned, in its order, without duplicates.

    Raises:
        ValueError: one of them is not an address.
    """
    return tuple(dict.fromkeys(map(ip_address, texts)))


# Lookups cannot be interrupted; while so many hang, others wait.
MAX_LOOKUPS = 16


@attrs.define
class SystemResolver:
    """Resolves names with the operating system; a `Resolve`."""

    _threads: Threads = attrs.field(
        factory=lambda: Threads(MAX_LOOKUPS, MAX_LOOKUPS, MAX_LOOKUPS), init=False
    )

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of *host*, best first; if cancelled, its thread goes on alone."""
        return cast("Sequence[str]", await self._threads.run(partial(_look_up, host)))


def _look_up(host: str) -> Sequence[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
