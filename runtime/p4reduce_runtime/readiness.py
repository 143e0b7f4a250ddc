"""Tells systemd that a service is ready (`Type=notify`): one datagram, sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

_log = logging.getLogger(__name__)

VARIABLE: Final = "NOTIFY_SOCKET"


def notify_ready() -> None:
    """Send READY=1 to the socket that the environment names, if it names one; a failure is logged."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect("\0" + address[1:] if address.startswith("@") else address)
            sock.send(b"READY=1")
    except OSError as error:
        _log.warning("the service manager at %s=%s was not told of readiness: %s", VARIABLE, address, error)
