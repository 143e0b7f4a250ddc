"""A controller and the embedded switch, or a tree of switches, as threads of this process: all but processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4reduce_controller import config
from p4reduce_controller.service.process import Controller
from p4reduce_runtime.security import Security
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.switch import Switch
from rigs.fake_switch_client import in_a_thread
from rigs.limits import LIMIT_S
from rigs.system import configuration, leaves_of, switch_of


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


@dataclass
class LocalSystem:
    """With racks a switch for each of them, `leaves`, below the last of `switches`."""

    switches: dict[str, LocalSwitch]
    controller: Controller

    @property
    def address(self) -> str:
        """The job service's."""
        return self.controller.address

    @property
    def leaves(self) -> list[str]:
        return list(self.switches)[:-1]

    @property
    def root(self) -> str:
        return list(self.switches)[-1]

    def switch_of(self, rank: int, world_size: int) -> str:
        """Return the switch that a rank sends to, as `join` takes it."""
        return switch_of(self.leaves, rank, world_size)


@contextlib.contextmanager
def local_system(
    folder: Path, racks: int = 1, switch_security: Security | None = None, security: str = ""
) -> Iterator[LocalSystem]:
    """Serve until the block ends. `security` is the controller's table [security]."""
    with contextlib.ExitStack() as stack:

        def start(uplink: str = "") -> LocalSwitch:
            return stack.enter_context(contextlib.closing(LocalSwitch(uplink, security=switch_security)))

        root = start()
        leaves = {name: start(root.address("UDP")) for name in leaves_of(racks)}
        text = configuration(folder, root, "127.0.0.1:0", leaves=leaves) + security
        controller, _, _ = stack.enter_context(in_a_thread(lambda: Controller(config.parse(text))))
        names = [switch.name for switch in controller.config.switches]
        yield LocalSystem({**leaves, names[0]: root}, controller)
