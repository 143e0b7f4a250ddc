"""The address by which other hosts reach this one: of GLOO_SOCKET_IFNAME, else of the route to the store's host."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

from p4reduce.errors import JoinError

INTERFACE_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR: Final = 0x8915
_ANY_PORT: Final = 9  # nothing is sent there


def own_address(environment: Mapping[str, str], store_host: str) -> str:
    """Return an IPv4 address of this host, "" if none is known; `store_host`: "" for a store without one.

    It is on loopback where the store is: then that reaches the other ranks, too. Raises JoinError for an interface
    that has none.
    """
    interface = environment.get(INTERFACE_VARIABLE, "").partition(",")[0]
    if interface:
        return _address_of(interface)
    return route_to(store_host) if store_host else ""


def route_to(host: str) -> str:
    """Return the address from which this host sends to another one; "" where there is no route."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, _ANY_PORT))
        return str(probe.getsockname()[0])
    return ""


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
