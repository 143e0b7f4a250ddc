"""Link states of the switch's interfaces, for the watch ports of action selectors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

SYSFS = Path("/sys/class/net")
INTERVAL_S = 0.25
DOWN = frozenset({"down", "lowerlayerdown", "notpresent", "dormant", "testing"})
"""States of operstate (RFC 2863); drivers without link detection, such as loopback, have `unknown`."""


class LinkStates:
    """Watches interfaces; calls `changed` with a port and whether it is up, on its own thread."""

    def __init__(
        self, interfaces: Mapping[int, str], changed: Callable[[int, bool], None], sysfs: Path = SYSFS
    ) -> None:
        self._interfaces = interfaces
        self._changed = changed
        self._sysfs = sysfs
        self._up = dict.fromkeys(interfaces, True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="link-states", daemon=True)

    def poll(self) -> None:
        """Read the states; call `changed` for those that differ from the last call."""
        for port, name in self._interfaces.items():
            up = self._is_up(name)
            if up != self._up[port]:
                self._up[port] = up
                self._changed(port, up)

    def _is_up(self, name: str) -> bool:
        try:
            return (self._sysfs / name / "operstate").read_text().strip() not in DOWN
        except OSError:  # the interface was removed
            return False

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.poll()

    def start(self) -> None:
        """Poll now, and every INTERVAL_S until `close`."""
        self.poll()
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(5)
