"""Own which hosts a webhook may reach: none of this network, unless the settings say so, however it is written.

A name is resolved once, all its addresses are looked at, and the connection is made to one of those: what the name
resolves to a moment later makes no difference (DNS rebinding). Source: OWASP's cheat sheet on server-side request
forgery, "application layer" and "network layer".
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from service.usecases.watches import ChannelError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
"""Gives the addresses of a host, by name and port; raises OSError when it has none."""

NAT64 = ip_network("64:ff9b::/96")
PUBLIC_IPV6 = ip_network("2000::/3")
PROTOCOLS = ip_network("192.0.0.0/24")
"""Which of its addresses are global differs between Pythons; none of them is a webhook's."""


def parse_networks(given: str) -> list[Network]:
    """Read networks with commas between, as `10.0.0.0/8`; raise ValueError for one that is none."""
    return [ip_network(one.strip()) for one in given.split(",") if one.strip()]


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]).partition("%")[0] for *_, address in found]


def choose_address(host: str, port: int, allowed: Sequence[Network], resolving: Resolve = resolve) -> str:
    """Give the address to connect to; raise ChannelError for a host that has none, or one that is refused."""
    try:
        found = [ip_address(one) for one in resolving(host, port)]
    except (OSError, UnicodeError, ValueError) as error:
        raise ChannelError(f"The host {host} cannot be resolved: {error}") from error
    if not found:
        raise ChannelError(f"The host {host} has no address.")
    for one in found:
        if not is_allowed(one, allowed):
            raise ChannelError(
                f"The host {host} is of this machine or a private network; set SUBSETD_WEBHOOK_ALLOW to that network "
                f"if webhooks are to reach it."
            )
    return str(found[0])


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Tell whether an address is a public one, or in an allowed network; of one that wraps another both count."""
    if any(address.version == one.version and address in one for one in allowed):
        return True
    inner = _wrapped(address)
    if inner is not None:
        return is_allowed(inner, allowed)
    is_special = address in PROTOCOLS if isinstance(address, IPv4Address) else address not in PUBLIC_IPV6
    return address.is_global and not address.is_multicast and not address.is_reserved and not is_special


def _wrapped(address: Address) -> IPv4Address | None:
    """Give the IPv4 address that an IPv6 address stands for (mapped, NAT64, 6to4, Teredo, or the old compatible)."""
    if isinstance(address, IPv4Address):
        return None
    if address in NAT64 or int(address) >> 32 == 0:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (None if teredo is None else teredo[1])
