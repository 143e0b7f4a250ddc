"""The compiled programs of a tree of switches in this process, with one job's entries as the controller makes them."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from typing import Final

from p4reduce.testing.world import Place
from p4reduce_contracts import artifacts
from p4reduce_contracts.jobs.lease import Lease, Level
from p4reduce_contracts.wire import AGGREGATION_PORT, UPLINK_PORT
from p4reduce_controller.config import HostAddress, SwitchConfig
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Child, Grant, Parent
from p4reduce_controller.registry.slots import DEFAULT_SLOTS, SlotRange
from p4reduce_controller.registry.tree import Tree, TreeSwitch
from p4reduce_lab.bench.load import EPOCH, JOB, headers, program
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_switch.program import Program, compile_program

ROOT: Final = 0
"""Racks are numbered from 1; a single rack is the root itself."""
_SECRET: Final = 0x1122334455660000
_FIRST_IP: Final = int(ipaddress.IPv4Address("10.78.16.0"))


class RackPrograms:
    """A root and racks below it; `racks` are the ranks of each. One rack alone is one switch.

    It is the switches of a p4reduce.testing.world.World.
    """

    def __init__(self, racks: Sequence[Sequence[int]]) -> None:
        folder = pipeline_folders.find("default")
        shape = artifacts.geometry(folder)
        compiled = compile_program((folder / pipeline_folders.PROGRAM).read_bytes())
        self.racks = racks if len(racks) > 1 else ()
        """The ranks below each trunk."""
        configs = _configs(len(self.racks))
        self._addresses: dict[int, Address] = {}
        self._next: dict[tuple[int, int], Place] = {}
        places = {rank: number for number, ranks in enumerate(racks, 1 if self.racks else 0) for rank in ranks}
        levels = Tree(TreeSwitch(config) for config in configs).place({r: _name(n) for r, n in places.items()})
        self._programs = []
        self._heads: dict[tuple[int, int], bytes] = {}  # by rank and length
        for number, config in enumerate(configs):
            grant = self._grant(number, levels[config.name], configs)
            loaded = Program(compiled)
            program(loaded, grant, config)
            self._programs.append(loaded)
        self.leases = [
            Lease(
                *(JOB, "simulated", EPOCH, rank, len(places), DEFAULT_SLOTS, shape.columns, shape.block_words),
                secret=_SECRET + rank,
                levels=_path(levels, _name(places[rank])),
            )
            for rank in sorted(places)
        ]
        """By rank."""
        self._places = places
        self._configs = configs
        self.frames = 0
        """Frames that the switches took in, and the processor seconds that they needed."""
        self.cpu_s = 0.0

    def _grant(self, number: int, level: Level, configs: Sequence[SwitchConfig]) -> Grant:
        """Return what a switch is granted, and note where its ports lead."""
        children = []
        for bit, ranks in enumerate(level.children):
            port = 1 + bit
            if number or not self.racks:
                (rank,) = ranks
                address = Address(port, 0x020000000100 + rank, _FIRST_IP + rank, 30000 + rank)
                children.append(Child(address, _SECRET + rank, ranks))
                self._addresses[rank] = address
                self._next[number, port] = Place(-1, rank=rank)
            else:
                below = 1 + bit
                children.append(Child(_trunk(port, configs[below]), _SECRET + 0x8000 + below, ranks, _name(below)))
                self._next[number, port] = Place(below, UPLINK_PORT)
                self._next[below, UPLINK_PORT] = Place(number, port)
        parent = None
        if level.parent is not None:
            parent = Parent(level.parent, _trunk(UPLINK_PORT, configs[ROOT]), _SECRET + 0x8000 + number)
        return Grant(JOB, "simulated", EPOCH, SlotRange(0, DEFAULT_SLOTS), tuple(children), parent, level.switch)

    @property
    def register_bytes(self) -> int:
        """The memory of one switch's registers, of all its slots."""
        return sum(register.memory.nbytes for register in self._programs[ROOT].registers.values())

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """Return what a rank sends as a frame, and where that arrives."""
        number, address = self._places[rank], self._addresses[rank]
        head = self._heads.get((rank, len(payload)))
        if head is None:
            head = self._heads[rank, len(payload)] = headers(address, self._configs[number], len(payload))
        return Place(number, address.ingress_port), head + payload

    def payload(self, frame: bytes) -> bytes:
        """Return the payload of a frame that a switch sent."""
        return frame[ENCAP_BYTES:]

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """Run a frame through the program where it arrives; return what leaves, and where that arrives."""
        began = time.thread_time_ns()
        out = self._programs[place.switch].process(place.port, frame)
        self.cpu_s += (time.thread_time_ns() - began) / 1e9
        self.frames += 1
        return [(self._next[place.switch, port], sent) for port, sent in out]


def _name(number: int) -> str:
    return f"rack{number}" if number else "root"


def _configs(racks: int) -> list[SwitchConfig]:
    """The root and the racks below it, each with an address of its own."""
    root = SwitchConfig(name=_name(ROOT), address=HostAddress("10.78.0.1"))
    below = [
        SwitchConfig(
            name=_name(number), address=HostAddress(f"10.78.0.{1 + number}"), parent=root.name, uplink_port=UPLINK_PORT
        )
        for number in range(1, racks + 1)
    ]
    return [root, *below]


def _trunk(port: int, config: SwitchConfig) -> Address:
    return Address(port, config.trunk_mac_value, config.trunk_ip_value, AGGREGATION_PORT)


def _path(levels: dict[str, Level], name: str) -> tuple[Level, ...]:
    path = [levels[name]]
    while path[-1].parent:
        path.append(levels[path[-1].parent])
    return tuple(path)
