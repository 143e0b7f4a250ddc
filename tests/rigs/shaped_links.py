"""Links of a limited rate in virtual time, and a switch that stands still from time to time, as on a busy machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from p4reduce.testing.terrible_network import Member, NetworkConditions, SwitchSide, TerribleNetwork
from p4reduce_runtime.datagrams import ENCAP_BYTES


@dataclass
class Shaper:
    """A token bucket (tc-tbf): one direction of a rank's link. Frames leave in the order in which they came."""

    bytes_per_s: float
    burst: int
    tokens: float = 0.0
    free_at: float = 0.0

    def leaves(self, now: float, size: int) -> float:
        """Return when a frame of `size` bytes that comes now leaves."""
        at = max(now, self.free_at)
        self.tokens = min(self.burst, self.tokens + (at - self.free_at) * self.bytes_per_s)
        if self.tokens < size:
            at += (size - self.tokens) / self.bytes_per_s
            self.tokens = size
        self.tokens -= size
        self.free_at = at
        return at


class ShapedNetwork(TerribleNetwork):
    """Loses nothing and keeps the order of each link: every frame that is sent again is sent again needlessly.

    After every `stall_after` frames the switch takes none in for `stall_s` seconds.
    """

    def __init__(  # noqa: PLR0917
        self,
        switch: SwitchSide,
        members: Sequence[Member],
        conditions: NetworkConditions,
        seed: int,
        bits_per_s: float,
        burst: int,
        stall_after: int,
        stall_s: float,
    ) -> None:
        super().__init__(switch, members, conditions, seed)
        links = [[Shaper(bits_per_s / 8, burst, burst) for _ in members] for _ in range(2)]
        self._uplinks, self._downlinks = links
        self._stall_after, self._stall_s = stall_after, stall_s
        self._taken = 0

    def _up(self, member: Member, frames: list[bytes]) -> None:
        uplink = self._uplinks[member.lease.rank]
        for frame in frames:
            self.log.append((member.lease.rank, frame))
            self._send(
                partial(self._at_switch, member.lease.rank, frame), uplink.leaves(self.now, len(frame) + ENCAP_BYTES)
            )
        super()._up(member, [])

    def _at_switch(self, rank: int, payload: bytes) -> None:
        self._taken += 1
        if self._taken % self._stall_after == 0:
            self._busy_until = max(self.now, self._busy_until) + self._stall_s
        self._busy_until = max(self.now, self._busy_until) + self.conditions.frame_s
        for to, answer in self.switch.process(rank, payload):
            leaves = self._downlinks[to].leaves(self._busy_until, len(answer) + ENCAP_BYTES)
            self._send(partial(self._down, self.members[to], answer), leaves)
