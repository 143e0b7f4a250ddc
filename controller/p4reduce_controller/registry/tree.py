"""The tree of switches, and which part of it a job needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from p4reduce_contracts.jobs.answers import SwitchAddress
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.jobs.lease import MOST_SWITCHES, Level
from p4reduce_contracts.wire.numbers import MAX_CHILDREN
from p4reduce_controller.config import SwitchConfig


class PlacementError(Exception):
    """The switches cannot sum for ranks at these places; the message says why."""


@dataclass(frozen=True)
class TreeSwitch:
    """A switch of the configuration, and what its pipeline can do."""

    config: SwitchConfig = SwitchConfig()
    max_children: int = MAX_CHILDREN

    @property
    def name(self) -> str:
        """The switch's name in the configuration."""
        return self.config.name

    @property
    def address(self) -> SwitchAddress:
        """The address to which ranks that name it send."""
        return SwitchAddress(self.name, str(self.config.address), self.config.udp_port)


class Tree:
    """All switches of the controller. Each has at most one parent; switches without one are tops of separate trees."""

    def __init__(self, switches: Iterable[TreeSwitch] = (TreeSwitch(),)) -> None:
        """`switches` are of one checked configuration."""
        self.switches = {switch.name: switch for switch in switches}
        shared = Counter(switch.address.address for switch in self.switches.values())
        alone = [
            name
            for name, switch in self.switches.items()
            if self.parent(name) is None and not self.children(name) and shared[switch.address.address] == 1
        ]
        self.side_by_side = tuple(alone[:MOST_SWITCHES]) if len(alone) > 1 else ()
        """The switches without parent and children, each with an address of its own, where there are several."""

    @property
    def max_world_size(self) -> int:
        """The largest number of ranks of a job: each is a child of a switch, and all are in one tree."""
        ranks = Counter[str]()
        for name, switch in self.switches.items():
            ranks[self.path(name)[-1]] += switch.max_children
        return max(ranks.values())

    def addresses(self, target: str) -> tuple[SwitchAddress, ...]:
        """Return where a rank sends HELLO that names the switch `target`; "": none.

        That is then to the switches side by side, and without those to the one address that all switches have.
        Raises InvalidRequestError, which lists the switches.
        """
        listed = ", ".join(f"{name} at {self.switches[name].address.address}" for name in sorted(self.switches))
        if target:
            if target not in self.switches:
                raise InvalidRequestError(f"there is no switch {target!r}; there are {listed}")
            return (self.switches[target].address,)
        if self.side_by_side:
            return tuple(self.switches[name].address for name in self.side_by_side)
        different = {replace(switch.address, name="") for switch in self.switches.values()}
        if len(different) > 1:
            raise InvalidRequestError(
                f"the switches have different addresses: name this rank's switch with P4REDUCE_SWITCH or "
                f"join(switch=...); there are {listed}"
            )
        return tuple(different)

    def parent(self, name: str) -> str | None:
        """Return the switch above, None at the top."""
        return self.switches[name].config.parent

    def children(self, name: str) -> list[str]:
        """Return the switches below."""
        return [other for other in self.switches if self.parent(other) == name]

    def path(self, name: str) -> list[str]:
        """Return the switches from this one to the top."""
        path = [name]
        while (parent := self.parent(path[-1])) is not None:
            path.append(parent)
        return path

    def place(self, places: Mapping[int, str]) -> dict[str, Level]:
        """Return the switches that sum for a job's ranks, by name, the root first; `places` has each rank's switch.

        The root is the lowest switch above all ranks. A switch's children are in the order of their smallest ranks.
        Raises PlacementError.
        """
        paths = {name: self.path(name) for name in sorted(set(places.values()))}
        above_all = [name for name in next(iter(paths.values())) if all(name in path for path in paths.values())]
        if not above_all:
            raise PlacementError(
                f"the ranks are at the switches {', '.join(paths)}, which are in separate trees: no switch is above "
                "all of them; keep the job's ranks in one tree (`p4reduce controller switches`)"
            )
        root = above_all[0]
        needed = {name for path in paths.values() for name in path[: path.index(root) + 1]}
        behind: dict[str, list[tuple[int, ...]]] = {name: [] for name in needed}
        for rank, name in places.items():
            behind[name].append((rank,))
        levels: dict[str, Level] = {}
        from_root = sorted(needed, key=lambda name: (len(self.path(name)), name))
        for name in reversed(from_root):
            parent = None if name == root else self.parent(name)
            level = levels[name] = Level(name, tuple(sorted(behind[name])), parent)
            if len(level.children) > (most := self.switches[name].max_children):
                raise PlacementError(
                    f"switch {name} would have {len(level.children)} children of the job, ranks and switches, and "
                    f"takes at most {most}: put some of the ranks behind other switches"
                )
            if parent is not None:
                behind[parent].append(level.ranks)
        return {name: levels[name] for name in from_root}
