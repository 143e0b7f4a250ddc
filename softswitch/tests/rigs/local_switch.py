"""The embedded switch as threads of this process."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S


class LocalSwitch:
    """A switch at free addresses of the loopback interface; its P4Runtime server takes `options`."""

    def __init__(self, uplink: str = "", switch: Switch | None = None, **options: Any) -> None:
        host, _, port = uplink.rpartition(":")
        self.switch = switch or Switch()
        self._ports = UdpUnderlay(
            ("127.0.0.1", 0),
            uplink=(host, int(port)) if uplink else None,
            cpu_port=self.switch.cpu_port,
            in_use=self.switch.ports_in_use,
        )
        self.switch.add_ports(self._ports)
        self.server = Server(self.switch, "127.0.0.1:0", **options)
        self.server.start()
        self._thread = threading.Thread(target=self.switch.run)
        self._thread.start()
        self._closing = contextlib.ExitStack()
        for close in (self.switch.close, self.stop_frames, self.server.stop):
            self._closing.callback(close)

    def address(self, before: str) -> str:
        """Return that of "UDP" or "P4Runtime"."""
        return f"127.0.0.1:{self._ports.address[1] if before == 'UDP' else self.server.port}"

    def stop_frames(self) -> None:
        """Take no frame any more; P4Runtime goes on."""
        self.switch.stop()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        """End it; again it does nothing."""
        self._closing.close()
