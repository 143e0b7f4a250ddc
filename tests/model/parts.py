"""The ranks, the switch and the frames of a job that is searched: their states by number, and the steps between these.

Ranks and switch are functions of their own state and of what reaches them, so the code itself computes each of their
steps once, and the search looks it up from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

from model.calls import Generation
from model.ranks import BrokenPropertyError, Rank, is_before
from model.switch import CompiledSwitch
from p4reduce.protocol.datagram import switch_of
from p4reduce_contracts.errors import FrameError
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_contracts.wire.numbers import CONTRIBUTE, RESULT
from p4reduce_contracts.wire.side_by_side import slot_of

Value = TypeVar("Value")
Numbers = tuple[int, ...]
Reached = tuple[int, Numbers]
"""A part's state after a step, and the frames that it sent."""


@dataclass(frozen=True)
class InFlight:
    """A frame on its way between a rank and its switch, or (`up`, with a `rank` below 0) over a link to a switch."""

    rank: int
    up: bool
    payload: bytes
    switch: int
    """The switch side by side that it goes to or comes from."""

    @classmethod
    def of(cls, rank: int, up: bool, payload: bytes) -> InFlight:
        """Return a frame whose payload says its switch."""
        return cls(rank, up, payload, switch_of(payload))


class Numbered(Generic[Value]):
    """Values by number, in the order in which they were first met; equal ones have one number."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        """Return a value's number, a new one for a new value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Parts:
    """All states that the ranks and the switch have been in, and all frames that they have sent."""

    def __init__(
        self,
        generations: Sequence[Generation],
        make_switch: Callable[[Sequence[Generation]], CompiledSwitch],
        *,
        flips: bool,
    ) -> None:
        """`flips`: bits of frames may be flipped, so that collectives may fail."""
        self._generations = generations
        self.ranks = [Rank(rank, generations, may_fail=flips) for rank in range(len(generations[0].leases))]
        self._switch = make_switch(generations)
        self._numbered_states, self._numbered_frames = Numbered[Any](), Numbered[InFlight]()
        self._switch_states, self.frames = self._numbered_states.values, self._numbered_frames.values
        self._rank_steps: dict[tuple[int, int, int], Reached] = {}
        self.overwritten: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Step of the switch -> the slots, and their rounds, that it overwrote."""
        self.entered, self.renewed, self.switch_step = cache(self._entered), cache(self._renewed), cache(self._stepped)
        self.is_over, self.flipped = cache(self._is_over), cache(self._flipped)

    def first_switch(self) -> int:
        return self._numbered_states.number(self._switch.begin(0))

    def newest(self, switch: int) -> int:
        """Return the generation of leases that the switch admits, in one of its states."""
        generation: int = self._switch_states[switch][0]
        return generation

    def _entered(self, rank: int, generation: int) -> Reached:
        """Return what a rank is and sends when it begins in new leases."""
        return self._sent(rank, self.ranks[rank].enter(generation))

    def rank_step(self, rank: int, state: int, number: int) -> Reached:
        """Let a rank take in a frame; below 0: let its timer fire. Raises BrokenPropertyError."""
        key = rank, state, number
        reached = self._rank_steps.get(key)
        if reached is None:
            reached = self._sent(rank, self.ranks[rank].step(state, self._payload(number)))
            self._rank_steps[key] = reached
        return reached

    def _renewed(self, state: int) -> int:
        return self._numbered_states.number(self._switch.renew(self._switch_states[state]))

    def _stepped(self, state: int, number: int) -> Reached:
        """Let the switch take in a frame."""
        frame, before = self.frames[number], self._switch_states[state]
        after, out = self._switch.process(before, frame.rank, frame.payload)
        sent = tuple(self._numbered_frames.number(InFlight.of(to, to < 0, payload)) for to, payload in out)
        old, new = self._switch.rounds(before), self._switch.rounds(after)
        self.overwritten[state, number] = [
            (version >> 1, round_)
            for (switch, version), round_ in old.items()
            if round_ is not None and new[switch, version] != round_
        ]
        return self._numbered_states.number(after), sent

    def _is_over(self, number: int, state: int) -> bool:
        """Return whether a frame changes nothing, and never will, since its round is over.

        `state`: that of the part that it is on its way to.
        """
        frame = self.frames[number]
        try:
            header = unpack(SMALL, frame.payload)
            reached = self.switch_step(state, number) if frame.up else self.rank_step(frame.rank, state, number)
        except (FrameError, BrokenPropertyError):
            return False
        if reached != (state, ()):
            return False
        if frame.up:
            switch = self._switch_states[state]
            slot = self._slot(switch[0], frame, header.slot)
            version = self._switch.at(frame.rank, frame.switch), slot << 1 | header.round & 1
            round_ = self._switch.rounds(switch).get(version)
            return round_ is not None and is_before(header.round, round_)
        rank = self.ranks[frame.rank]
        if rank.done(state):
            return rank.generation(state) == len(self._generations) - 1
        return is_before(header.round, rank.rounds(state)[self._slot(rank.generation(state), frame, header.slot)])

    def _slot(self, generation: int, frame: InFlight, slot: int) -> int:
        """Return which of the job's slots a frame's is, by a generation's leases."""
        lease = self._generations[generation].leases[0]
        switches = [switch.port for switch in lease.switches]
        if frame.switch not in switches:
            return -1
        return slot_of(switches.index(frame.switch), slot, len(switches), lease.slots_together)

    def _flipped(self, number: int) -> Numbers:
        """Return the frame with a bit of every field flipped, and with two bits of every block."""
        frame = self.frames[number]
        header = (0, 1, 2, 4, 6, 11, 15, 16, 27, 28, *range(32, SMALL.frame_header_bytes, 4))
        blocks = range(SMALL.frame_header_bytes, len(frame.payload), SMALL.block_bytes)
        bits = [8 * byte + 7 for byte in header] + [8 * byte + bit for byte in blocks for bit in (0, 30)]
        return tuple(
            self._numbered_frames.number(replace(frame, payload=_with_flipped_bit(frame.payload, bit))) for bit in bits
        )

    def text(self, number: int) -> str:
        frame = self.frames[number]
        way = f"rank {frame.rank} to switch" if frame.up else f"switch to rank {frame.rank}"
        if frame.rank < 0:
            way = f"link {~frame.rank} to switch {self._switch.at(frame.rank, frame.switch)}"
        try:
            header = unpack(SMALL, frame.payload)
        except FrameError as error:
            return f"{way}: damaged ({error.reason})"
        kind = {CONTRIBUTE: "CONTRIBUTE", RESULT: "RESULT"}.get(header.type, "PENDING")
        columns = [column for column in range(SMALL.columns) if header.present >> column & 1]
        if len(self._generations[0].leases[0].switches) > 1:
            way = way.replace("switch", f"switch {frame.switch}")
        leases = [generation.leases[max(0, frame.rank)] for generation in self._generations]
        lease = [
            number
            for number, lease in enumerate(leases)
            if any(switch.secret == header.secret for switch in lease.switches)
        ]
        where = f"slot {header.slot} round {header.round} columns {columns}"
        return f"{way}: {kind} {where}" + (f" of lease {lease}" if len(leases) > 1 else "")

    def check_equal_states(self) -> int:
        """Repeat the ranks' steps from other states that have the same number; return how many.

        AssertionError where they differ: then `ranks.py` leaves something out of a state that it must not.
        """
        repeated = 0
        for (rank, state, number), (after, sent) in list(self._rank_steps.items()):
            reached = after, [self.frames[frame].payload for frame in sent]
            repeated += self.ranks[rank].check_equal(state, self._payload(number), reached)
        return repeated

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return how many states the ranks and the switch have had, and how many frames there were."""
        return sum(rank.count for rank in self.ranks), len(self._switch_states), len(self.frames)

    def _payload(self, number: int) -> bytes | None:
        return None if number < 0 else self.frames[number].payload

    def _sent(self, rank: int, reached: tuple[int, Sequence[bytes]]) -> Reached:
        state, payloads = reached
        return state, tuple(self._numbered_frames.number(InFlight.of(rank, True, payload)) for payload in payloads)


def _with_flipped_bit(payload: bytes, bit: int) -> bytes:
    changed = bytearray(payload)
    changed[bit >> 3] ^= 0x80 >> (bit & 7)
    return bytes(changed)
