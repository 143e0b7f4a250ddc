"""One rank of the model: the worker's real engine, as a function from (state, frame or timer) to (state, frames).

A rank's clock stands still while it takes in frames, and goes to the timer when that fires; then all times of the
state are moved back by as much, so that equal situations are equal states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from model.calls import Generation, Refusal
from model.snapshots import RestorableCollective, Snapshot
from p4reduce.errors import CorruptSumError, P4ReduceError
from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce.protocol.initial_state import Records
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.state import Engine, Loss, Path, Slot, State
from p4reduce_contracts.wire.numbers import ROUND_MASK
from p4reduce_runtime.records import Record, dtype_of

_STATE, _STATS, _LOSS, _PATH, _SLOTS, _AGREED, _FRAMES, _SUMS = range(8)
"""The arrays of a snapshot."""
_DIAGNOSTICS = ("longest_result", "foreign_at_progress", "malformed_at_progress", "stale_at_progress")
_TIMES = ("last_result_at", "pto_at", "ambiguous_until", "timer_at")
_OF_FRAMES_IN_FLIGHT = ("previous", "next", "packet_number", "sent_at", "retransmits", "renumbered")
_DIGITS = 9
"""Times that differ by less than a nanosecond are equal."""


class BrokenPropertyError(AssertionError):
    """A property that must always hold is broken."""


@dataclass(frozen=True)
class RankState:
    """The state of a rank: its lease, its collective in that lease, and the state of this collective."""

    generation: int
    index: int
    snapshot: Snapshot | None
    """The collective's state; None: the rank has all results of the lease, or its job failed."""
    rounds: tuple[int, ...]
    """The round that each slot of the lease is in, or goes into next, by slot."""


class Rank:
    """A rank's states, numbered; each number stands for all states that go on in the same way.

    Where it `may_fail`, a CorruptSumError ends the rank's part as an error.
    """

    def __init__(self, rank: int, generations: Sequence[Generation], *, may_fail: bool) -> None:
        self.rank = rank
        self._states: list[RankState] = []
        self._numbers: dict[Any, int] = {}
        self._generations = generations
        self._may_fail = may_fail
        self._collectives: dict[tuple[int, int], RestorableCollective] = {}
        self._records: dict[tuple[int, int], Records] = {}
        self._equal: dict[int, RankState] = {}
        """Number -> another state that has it."""

    @property
    def count(self) -> int:
        return len(self._states)

    def enter(self, generation: int) -> tuple[int, Sequence[bytes]]:
        """Begin the collectives of a lease; return the state's number and the opening frames."""
        lease = self._generations[generation].leases[self.rank]
        return self._begin(generation, 0, [0] * lease.slot_count, RoundTrip(len(lease.switches)), [])

    def step(self, number: int, frame: bytes | None) -> tuple[int, Sequence[bytes]]:
        """Take in a frame; None: let the next timer fire. Return the state's number after it, and what is sent."""
        return self._step(number, self._states[number], frame)

    def check_equal(self, number: int, frame: bytes | None, reached: tuple[int, Sequence[bytes]]) -> bool:
        """Compare what another state of this number does with what the first one did; False if there is no other."""
        state = self._equal.get(number)
        if state is None:
            return False
        after = self._step(number, state, frame)
        assert (after[0], list(after[1])) == (reached[0], list(reached[1])), "states with one number differ"
        return True

    def _step(self, number: int, state: RankState, frame: bytes | None) -> tuple[int, Sequence[bytes]]:
        if state.snapshot is None:
            return number, ()
        collective = self._collectives[state.generation, state.index]
        collective.restore(state.snapshot)
        if frame is None:
            return self._after(state, collective, _fired(collective))
        switches = [switch.port for switch in self._generations[state.generation].leases[self.rank].switches]
        if switch_of(frame) not in switches:  # the rank has no socket for it any more
            return number, ()
        try:
            frames = collective.receive(Datagram(frame, switches.index(switch_of(frame))), 0.0)
        except CorruptSumError as error:
            if not self._may_fail:
                raise BrokenPropertyError(f"rank {self.rank}: {error}") from error
            return self._number_of(replace(state, snapshot=None)), ()
        except P4ReduceError as error:
            raise BrokenPropertyError(f"rank {self.rank}: {type(error).__name__}: {error}") from error
        return self._after(state, collective, frames)

    def done(self, number: int) -> bool:
        return self._states[number].snapshot is None

    def generation(self, number: int) -> int:
        return self._states[number].generation

    def rounds(self, number: int) -> tuple[int, ...]:
        """Return, by slot of the lease, the round that the rank is in, or goes into next."""
        return self._states[number].rounds

    def _after(
        self, state: RankState, collective: RestorableCollective, frames: list[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        frames = self._sent(state.generation, frames)
        if not collective.done:
            return self._number_of(_state_of(state.generation, state.index, collective)), frames
        self._check(self._generations[state.generation], state.index, collective)
        engine: Any = collective.engine
        round_trip = RoundTrip(len(engine.path))
        round_trip.table[:] = engine.path
        rounds = list(collective.snapshot().slot_rounds)
        return self._begin(state.generation, state.index + 1, rounds, round_trip, frames)

    def _begin(
        self, generation: int, index: int, rounds: list[int], round_trip: RoundTrip, frames: list[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        """Begin collective `index` of a lease; after the last one the rank is done."""
        given = self._generations[generation]
        if index == len(given.calls):
            return self._number_of(RankState(generation, index, None, tuple(rounds))), frames
        lease = given.leases[self.rank]

        def records_of(blocks: int, slots: int) -> Records:
            """Return the records of an earlier way to this place, as they were left, where there is one."""
            kept = self._records.get((generation, index))
            if kept is None:
                kept = Records(lease, blocks, slots=slots)
                self._records[generation, index] = kept
            arrays = dict(zip(Engine._fields, kept.arrays, strict=False))
            arrays["rounds"][:], arrays["path"][:], arrays["frames"][:] = rounds, round_trip.table, 0
            return kept

        collective = given.calls[index].begin(lease, index, records_of)
        self._collectives[generation, index] = collective
        opening = self._sent(generation, collective.start(0.0))
        return self._number_of(_state_of(generation, index, collective)), frames + opening

    def _sent(self, generation: int, frames: list[bytes]) -> list[bytes]:
        """Return what a collective sends, for the switches as the job's leases of all generations number them."""
        switches = self._generations[generation].leases[self.rank].switches
        return [Datagram(frame, switches[switch_of(frame)].port) for frame in frames]

    def _check(self, generation: Generation, index: int, collective: RestorableCollective) -> None:
        """What is handed out is the exact sum, and nothing is where a rank refused."""
        call = generation.calls[index]
        refused = {call.rank} if isinstance(call, Refusal) else set()
        if set(collective.refusals) != refused:
            raise BrokenPropertyError(
                f"rank {self.rank}, collective {index}: {sorted(refused)} refused, not {sorted(collective.refusals)}"
            )
        if isinstance(call, Refusal):
            try:
                collective.result()
            except RuntimeError:
                return
            raise BrokenPropertyError(f"rank {self.rank} got a result of collective {index}, which was refused")
        (result,) = collective.result()
        expected = call.expected(len(generation.leases))
        if not np.array_equal(result, expected):
            wrong = np.flatnonzero(result != expected)[0]
            raise BrokenPropertyError(
                f"rank {self.rank} got a wrong sum in collective {index}: number {wrong} is {result[wrong]:#x}, "
                f"not {expected[wrong]:#x}"
            )

    def _number_of(self, state: RankState) -> int:
        behaviour = None if state.snapshot is None else _behaviour(state.snapshot)
        key = state.generation, state.index, behaviour, state.rounds
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(state)
        elif number not in self._equal and state != self._states[number]:
            self._equal[number] = state
        return number


def _fired(collective: RestorableCollective) -> list[bytes]:
    """Let the next timer fire, and move all times back by as much; return what is sent."""
    now = collective.next_timer
    assert now is not None, "a collective that is not done has a timer"
    frames = collective.on_timer(now)
    engine: Any = collective.engine
    for name in _TIMES:
        engine.loss[name] -= now
    engine.slots["sent_at"] -= now
    return frames


def _state_of(generation: int, index: int, collective: RestorableCollective) -> RankState:
    snapshot = collective.snapshot()
    used = np.frombuffer(snapshot.arrays[_SLOTS], dtype_of(Slot))["round_number"].tolist()
    return RankState(generation, index, snapshot, (*used, *snapshot.slot_rounds[len(used) :]))


def is_before(round_: int, other: int) -> bool:
    """Whether a round is earlier than another one of the same slot."""
    return 0 < (other - round_) & ROUND_MASK < 1 << 31


def _records(content: bytes, record: type[Record]) -> Any:
    """Return the array of records, to write to; ndarray.copy would leave the bytes between fields undefined."""
    return np.frombuffer(bytearray(content), dtype_of(record))


def _behaviour(snapshot: Snapshot) -> tuple[object, ...]:
    """All of a state that says how it goes on: without counts, and with packet numbers that only have an order."""
    arrays = snapshot.arrays
    state = _records(arrays[_STATE], State)
    for name in _DIAGNOSTICS:
        state[name] = 0
    loss = _records(arrays[_LOSS], Loss)
    slots = _records(arrays[_SLOTS], Slot)
    path = _records(arrays[_PATH], Path)
    idle = ~slots["in_flight"]
    for name in _OF_FRAMES_IN_FLIGHT:
        slots[name][idle] = 0
    for switch, own in enumerate(loss):
        at = slots["switch"] == switch
        of_slots = slots["packet_number"][at]
        acked = [int(own[name]) for name in ("largest_acked", "largest_acked_any")]
        order = sorted({0, *acked, *of_slots.tolist()})
        slots["packet_number"][at] = np.searchsorted(order, of_slots)
        own["largest_acked"], own["largest_acked_any"] = np.searchsorted(order, acked)
    loss["largest_sent"] = 0
    loss["pto_count"] = np.minimum(loss["pto_count"], 1)
    slots["seen"] = np.minimum(slots["seen"], 0)
    slots["seen_level"] = 0
    for name in (*_TIMES, "latest_rtt", "pto", "ambiguous_wait"):
        loss[name] = np.round(loss[name], _DIGITS)
    slots["sent_at"] = np.round(slots["sent_at"], _DIGITS)
    for name in path.dtype.names or ():
        path[name] = np.round(path[name], _DIGITS)
    frames = np.frombuffer(arrays[_FRAMES], np.uint8).reshape(len(slots), -1).copy()
    frames[slots["frame_bytes"] == 0] = 0
    return (
        *(array.tobytes() for array in (state, loss, slots, path, frames)),
        arrays[_AGREED],
        arrays[_SUMS],
        snapshot.slot_rounds,
        snapshot.refusals,
        snapshot.early,
        snapshot.corrupt,
    )
