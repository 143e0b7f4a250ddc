"""A UDP payload, and which switch it goes to or came from."""

from __future__ import annotations


class Datagram(bytes):
    """A payload for, or from, the switch of that number in the lease; other bytes are for the first."""

    switch: int = 0


def datagram(payload: bytes, switch: int) -> Datagram:
    """Return a payload for, or from, a switch."""
    made = Datagram(payload)
    made.switch = switch
    return made


def switch_of(payload: bytes) -> int:
    """Return the switch of a payload."""
    return payload.switch if isinstance(payload, Datagram) else 0
