"""The address by which other hosts reach this one: of GLOO_SOCKET_IFNAME, else of the route to the store's host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from p4reduce.errors import JoinError
from p4reduce_runtime.security import is_loopback

INTERFACE_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR: Final = 0x8915
_ANY_PORT: Final = 9  # nothing is sent there


def own_address(environment: Mapping[str, str], store_host: str) -> str:
    """Return an IPv4 address of this host, "" if none is known; `store_host`: "" for a store without one.

    It is on loopback where the store is: then that reaches the other ranks, too. Raises JoinError where there is none.
    """
    if interface := _interface(environment):
        return _address_of(interface)
    if store_host and not (found := route_to(store_host)):
        raise JoinError(f"it has no route by IPv4 to {store_host} (MASTER_ADDR)")
    return found if store_host else ""


def gloo_address(store: Any, rank: int, size: int) -> str:
    """Return the address for this rank's gloo, IPv4 or IPv6, "" where gloo finds it; all ranks call it.

    Left alone gloo takes that of the host's name, which may have none, or as on Debian 127.0.1.1.
    """
    if not (host := host_of(store)):
        return ""
    own = "" if (interface := _interface(os.environ)) else _route(host)
    store.set(f"address/{rank}", own)
    if interface or (own and not is_loopback(f"{own}:0")):
        return own
    known = (address.decode() for address in store.multi_get([f"address/{other}" for other in range(size)]))
    return reachable(own, known)


def reachable(own: str, known: Iterable[str]) -> str:
    """Return the address by which hosts at the `known` ones reach this one, if only its `own` on loopback is known."""
    others = [address for address in known if address and not is_loopback(f"{address}:0")]
    return own if own in others or not others else _route(others[0]) or own


def local_addresses() -> list[str]:
    """Return all IPv4 addresses of this host's network namespace; [] where the system does not tell."""
    with contextlib.suppress(OSError):
        return re.findall(r"-- (\S+)\n\s+/32 host LOCAL", Path("/proc/self/net/fib_trie").read_text("ascii"))
    return []


def route_to(host: str, family: int = socket.AF_INET) -> str:
    """Return the address from which this host sends to another one; "" where there is no route."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, _ANY_PORT))
        return str(probe.getsockname()[0])
    return ""


def _route(host: str) -> str:
    return route_to(host) or route_to(host, socket.AF_INET6)


def _interface(environment: Mapping[str, str]) -> str:
    return environment.get(INTERFACE_VARIABLE, "").partition(",")[0]


def underlying(store: Any) -> Any:
    """Return the store below any number of PrefixStores."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def host_of(store: Any) -> str:
    """Return the host of a TCPStore, also below a PrefixStore; "" for another store."""
    return str(getattr(underlying(store), "host", ""))


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            text = f"{INTERFACE_VARIABLE} names {interface}, which has no IPv4 address: {error.strerror or error}"
            raise JoinError(text) from None
