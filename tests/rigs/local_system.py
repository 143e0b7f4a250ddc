"""A controller and the embedded switch, or a tree of switches, as threads of this process: all but processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from p4reduce_controller import config
from p4reduce_controller.service.process import Controller
from p4reduce_controller.switches.reconciler import RESTARTED
from p4reduce_runtime.security import Security
from rigs.fake_switch_client import in_a_thread
from rigs.local_switch import LocalSwitch
from rigs.system import configuration, leaves_of, switch_of


@dataclass
class LocalSystem:
    """A running system; with racks a switch for each of them, `leaves`, below or beside the last of `switches`."""

    switches: dict[str, LocalSwitch]
    controller: Controller
    loop: asyncio.AbstractEventLoop
    """The controller's."""

    @property
    def address(self) -> str:
        return self.controller.address

    @property
    def leaves(self) -> list[str]:
        return list(self.switches)[:-1]

    @property
    def root(self) -> str:
        return list(self.switches)[-1]

    def reset_jobs(self) -> None:
        """Reset all jobs as if the root had lost its entries."""
        self.loop.call_soon_threadsafe(partial(self.controller.registry.switch_lost, RESTARTED, switch=self.root))
        self.loop.call_soon_threadsafe(self.controller.notifier.notify)

    def switch_of(self, rank: int, world_size: int) -> str:
        """Return the switch that a rank sends to, as `join` takes it."""
        return switch_of(self.leaves, rank, world_size)


@contextlib.contextmanager
def local_system(
    folder: Path, racks: int = 1, switch_security: Security | None = None, security: str = "", *, beside: bool = False
) -> Iterator[LocalSystem]:
    """Serve until the block ends. `security` is the controller's table [security]."""
    with contextlib.ExitStack() as stack:

        def start(uplink: str = "") -> LocalSwitch:
            return stack.enter_context(contextlib.closing(LocalSwitch(uplink, security=switch_security)))

        root = start()
        leaves = {name: start("" if beside else root.address("UDP")) for name in leaves_of(racks)}
        text = configuration(folder, root, "127.0.0.1:0", **{"beside" if beside else "leaves": leaves}) + security
        controller, loop, _ = stack.enter_context(in_a_thread(lambda: Controller(config.parse(text))))
        names = [switch.name for switch in controller.config.switches]
        yield LocalSystem({**leaves, names[0]: root}, controller, loop)
