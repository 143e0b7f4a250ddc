"""Several compiled programs as a tree, driven frame by frame: each switch sums for its children."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Union

from p4reduce.testing.world import Place
from p4reduce_contracts.jobs.lease import Level
from p4reduce_switch.program import Compiled
from rigs.pipeline import (
    EPOCH,
    SLOT_COUNT,
    UPLINK_PORT,
    PipelineRig,
    from_host,
    payload_of,
    rank_host,
    rank_port,
    switch_host,
    with_secret,
)
from rigs.secret import rank_secret

Shape = Sequence[Union[int, "Shape"]]
"""The ranks and switches below a switch. [[0, 1], [2, 3]] is a root over two racks of two ranks."""


def uplink_secret(number: int) -> int:
    return number * 0x1002003004005007


class TreeRig:
    """A program for each switch of a tree, and one job that all ranks of it belong to; the caller is the network.

    Switches are numbered from 0, the root, depth first. `switches`: their programs. `children`: by switch, by bit of
    `seen`, the ranks behind each child. `parents`: by switch, its parent, -1 for the root.
    """

    def __init__(
        self,
        geometry_name: str,
        shape: Shape,
        *,
        epoch: int = EPOCH,
        secret_of: Callable[[int], int] = rank_secret,
        uplink_secret: Callable[[int], int] = uplink_secret,
        compiled: Compiled | None = None,
        slot_count: int = SLOT_COUNT,
    ) -> None:
        """`uplink_secret`: a switch's at its parent. `compiled`: another program to run."""
        self.switches: dict[int, PipelineRig] = {}
        self.children: list[list[tuple[int, ...]]] = []
        self.parents: list[int] = []
        self._leads_to: dict[tuple[int, int], Place] = {}
        self._rank_at: dict[int, Place] = {}
        self._secret_of, self._uplink_secret = secret_of, uplink_secret
        self._rig = partial(PipelineRig, geometry_name, epoch=epoch, compiled=compiled, slot_count=slot_count)
        self._build(shape, -1)
        self.geometry = self.switches[0].geometry
        self.world_size = len(self._rank_at)

    def _build(self, shape: Shape, parent: int) -> int:
        number = len(self.children)
        below = sorted(shape, key=lambda one: min(_ranks(one)))
        self.children.append([tuple(sorted(_ranks(one))) for one in below])
        self.parents.append(parent)
        hosts = []
        for bit, one in enumerate(below):
            port = rank_port(bit)
            if isinstance(one, int):
                hosts.append(rank_host(one, self._secret_of(one)))
                self._leads_to[number, port] = Place(-1, rank=one)
                self._rank_at[one] = Place(number, port)
            else:
                child = self._build(one, number)
                hosts.append(switch_host(child, self._uplink_secret(child)))
                self._leads_to[number, port] = Place(child, UPLINK_PORT)
                self._leads_to[child, UPLINK_PORT] = Place(number, port)
        above = None if parent < 0 else switch_host(parent, self._uplink_secret(number))
        self.switches[number] = self._rig(len(hosts), children=hosts, parent=above, number=number)
        return number

    def above(self, rank: int) -> list[int]:
        """The switches from the rank's own up to the root."""
        found = [self._rank_at[rank].switch]
        while self.parents[found[-1]] >= 0:
            found.append(self.parents[found[-1]])
        return found

    def levels(self, rank: int) -> tuple[Level, ...]:
        names = [f"switch{number}" if number else "root" for number in range(len(self.parents))]
        return tuple(
            Level(names[switch], tuple(self.children[switch]), names[self.parents[switch]] if switch else "")
            for switch in self.above(rank)
        )

    def renew(self, epoch: int) -> None:
        for switch in self.switches.values():
            switch.renew(epoch)

    def framed(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """A payload of a rank as the frame that arrives at its switch."""
        place = self._rank_at[rank]
        return place, from_host(rank_host(rank, self._secret_of(rank)), payload, place.switch)

    @property
    def trunks(self) -> list[Place]:
        """Return the ports at which the frames of other switches arrive."""
        ports = ((switch, self._leads_to[switch, port].switch, port) for switch, port in self._leads_to)
        return [Place(switch, port) for switch, other, port in ports if other >= 0]

    def sender(self, trunk: Place) -> int:
        return self._leads_to[trunk.switch, trunk.port].switch

    def framed_on_trunk(self, place: Place, payload: bytes) -> bytes:
        """A payload of the switch whose frames arrive at that place, as its frame."""
        return from_host(switch_host(self.sender(place), 0), payload, place.switch)

    def sent(self, rank: int, payload: bytes) -> tuple[Place, bytes]:
        """A contribution of a rank, with its secret, as the frame that arrives at its switch."""
        return self.framed(rank, with_secret(payload, self._secret_of(rank)))

    def payload(self, frame: bytes) -> bytes:
        return payload_of(frame)

    def arrive(self, place: Place, frame: bytes) -> list[tuple[Place, bytes]]:
        """A frame that arrives at a switch: what leaves it, each with the place where it arrives next.

        What leaves at a port to which nothing is attached is lost.
        """
        out = self.switches[place.switch].process(place.port, frame)
        leads_to, number = self._leads_to, place.switch
        return [(leads_to[number, port], sent) for port, sent in out if (number, port) in leads_to]

    def send(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """A contribution over links that lose nothing: (rank, frame) of all that arrives at ranks, in order."""
        waiting, arrived = [self.sent(rank, payload)], []
        while waiting:
            place, frame = waiting.pop(0)
            if place.rank >= 0:
                arrived.append((place.rank, frame))
            else:
                waiting += self.arrive(place, frame)
        return arrived


def racks(count: int, size: int) -> list[list[int]]:
    """The shape of a root over `count` racks of `size` ranks each, in order."""
    return [list(range(first, first + size)) for first in range(0, count * size, size)]


TREES: Final[dict[str, Shape]] = {
    "2x1": racks(2, 1),
    "2x2": racks(2, 2),
    "3x2": racks(3, 2),
    "2x2x2": [racks(2, 2), [[4, 5], [6, 7]]],
}


def _ranks(shape: int | Shape) -> Iterator[int]:
    if isinstance(shape, int):
        yield shape
    else:
        for one in shape:
            yield from _ranks(one)
