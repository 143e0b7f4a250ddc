"""A UDP payload, and which switch it goes to or came from."""

from __future__ import annotations

from typing import Self


class Datagram(bytes):
    """A payload for, or from, the switch of that number in the lease; other bytes are for the first."""

    switch: int

    def __new__(cls, payload: bytes, switch: int = 0) -> Self:
        made = super().__new__(cls, payload)
        made.switch = switch
        return made


def switch_of(payload: bytes) -> int:
    """Return the switch of a payload."""
    return payload.switch if isinstance(payload, Datagram) else 0
