"""Plain Ethernet forwarding beside the aggregation: the port of each MAC address.

The switch reports unknown source addresses in digests. Each learned address is in two tables of the P4
program: `mac_table` sends frames there, `learned` keeps the switch from reporting it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from p4reduce_controller.config import Config, SwitchConfig, mac_value
from p4reduce_controller.p4runtime.client import Operation
from p4reduce_controller.switches.program_names import FLOOD_GROUP, P4Names
from p4reduce_runtime.p4runtime.entries import MulticastGroup, TableEntry

MAX_LEARNED = 1024
_GROUP_BIT = 1 << 40  # of a MAC address: a group address

Update = tuple[Operation, TableEntry]


class MacTable:
    """The addresses that one switch has learned, and the writes for each new one. It does no I/O."""

    def __init__(self, config: Config, switch: SwitchConfig, names: P4Names) -> None:
        """`switch` is one of those of `config`."""
        self._names = names
        self._static = {mac_value(port.mac): port.number for port in config.ports if port.switch in ("", switch.name)}
        self._own = {switch.mac_value, switch.trunk_mac_value}
        self._flood = config.forwarding.flood if switch.flood is None else switch.flood
        self.learns = config.forwarding.learn
        """Whether the switch should report addresses at all."""
        self._learned: OrderedDict[int, int] = OrderedDict()

    def opening(self) -> list[TableEntry | MulticastGroup]:
        """Return the entries of a switch that has learned nothing; learned addresses are dropped."""
        self._learned.clear()
        flood = [MulticastGroup(FLOOD_GROUP, tuple((port, 1) for port in self._flood))] if self._flood else []
        return [*self._entries(self._static), *flood]

    def adopt(self, found: Iterable[TableEntry]) -> list[TableEntry]:
        """Adopt the addresses that an earlier controller learned; return their entries, of those found on a switch."""
        self._learned.clear()
        for entry in found:
            if self.learns and entry.table == self._names.learned and len(self._learned) < MAX_LEARNED:
                mac, port = entry.match["src_mac"], entry.match["ingress_port"]
                if isinstance(mac, int) and isinstance(port, int) and mac not in self._static:
                    self._learned[mac] = port
        return self._entries(self._learned)

    def learn(self, mac_learn_events: Iterable[tuple[int, ...]]) -> list[Update]:
        """Return the writes for a digest's (MAC, port) pairs, except static, group and the switch's own addresses."""
        updates: list[Update] = []
        if not self.learns:
            return updates
        for mac, port in mac_learn_events:
            if mac & _GROUP_BIT or mac in self._static or mac in self._own:
                continue
            before = self._learned.get(mac)
            if before == port:
                continue
            if before is not None:
                updates += [("delete", self._known(mac, before)), ("modify", self._forward(mac, port))]
            else:
                if len(self._learned) >= MAX_LEARNED:
                    oldest, its_port = self._learned.popitem(last=False)
                    updates += [("delete", self._known(oldest, its_port)), ("delete", self._forward(oldest, its_port))]
                updates.append(("insert", self._forward(mac, port)))
            updates.append(("insert", self._known(mac, port)))
            self._learned[mac] = port
            self._learned.move_to_end(mac)
        return updates

    def _entries(self, ports: Mapping[int, int]) -> list[TableEntry]:
        """Return both entries of each MAC address, given with its port."""
        return [entry for mac, port in ports.items() for entry in (self._forward(mac, port), self._known(mac, port))]

    def _forward(self, mac: int, port: int) -> TableEntry:
        return TableEntry(
            table=self._names.mac_table, match={"dst_mac": mac}, action=self._names.forward, params={"port": port}
        )

    def _known(self, mac: int, port: int) -> TableEntry:
        return TableEntry(
            table=self._names.learned, match={"src_mac": mac, "ingress_port": port}, action=self._names.known, params={}
        )
