"""The P4Runtime server of the switch."""

from __future__ import annotations

from p4reduce_switch.p4runtime.server import Server
from p4reduce_switch.p4runtime.status import RequestError

__all__ = ["RequestError", "Server"]
