"""A tree of compiled programs whose links, those between switches too, lose, repeat, delay and reorder frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from p4reduce.testing.terrible_network import Member, NetworkConditions, TerribleNetwork
from p4reduce_contracts.wire import MAX_GROWTH_BYTES
from rigs.pipeline import payload_of
from rigs.tree import Place, TreeRig

Link = tuple[int, int]
"""From a switch to a switch; -1: all ranks."""


class TreeNetwork(TerribleNetwork):
    """Runs the members of one job over a tree; every hop is a datagram of its own.

    `frames` and `bytes` count what was put on each link, UDP payloads, before any loss.
    """

    def __init__(self, tree: TreeRig, members: Sequence[Member], conditions: NetworkConditions, seed: int) -> None:
        super().__init__(_NoSwitch(), members, conditions, seed)
        self.tree = tree
        self.frames: Counter[Link] = Counter()
        self.bytes: Counter[Link] = Counter()

    def _at_switch(self, rank: int, payload: bytes) -> None:
        place, frame = self.tree.framed(rank, payload)
        self._count((-1, place.switch), frame)
        self._arrive(place, frame)

    def _arrive(self, place: Place, frame: bytes) -> None:
        if place.rank >= 0:
            self._down(self.members[place.rank], payload_of(frame))
            return
        for to, sent in self.tree.arrive(place, frame):
            assert len(sent) <= len(frame) + MAX_GROWTH_BYTES, "BMv2 would abort"
            self._count((place.switch, to.switch), sent)
            self._send(partial(self._arrive, to, sent))

    def _count(self, link: Link, frame: bytes) -> None:
        self.frames[link] += 1
        self.bytes[link] += len(payload_of(frame))


class _NoSwitch:
    """In the place of the one switch that a TerribleNetwork has."""

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        raise NotImplementedError
