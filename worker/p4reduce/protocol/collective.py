"""One collective, without I/O: (frame | timer, now) in, frames out.

Frames are UDP payloads. Every slot used walks through rounds: an opening round that carries keys only (and, in slot 0,
every rank's call descriptor), then one round per set of agreed blocks, until no rank holds a further block.

The state is records and arrays (state.py, initial_state.py) that kernels work on: receive.py, contribute.py,
recovery.py, lookahead.py. This module does what is rare. A socket (channel.py) is served by the loop in pump.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveMismatchError, CorruptSumError, Reason
from p4reduce.protocol.blocks import Array, Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.channel import Channel
from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce.protocol.deadline import Obstacle, OpenSlot, obstacle, too_late
from p4reduce.protocol.initial_state import Records, joined, new_slots
from p4reduce.protocol.opening import read_calls
from p4reduce.protocol.state import COMPARE_CALLS, END, HOLD_BACK, Engine, NextFrame, Received, Slot
from p4reduce.protocol.timing import MAX_PTO_S
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.wire.numbers import KEY_NONE, PRESENT_BYTE, SLOT_BYTES
from p4reduce_contracts.wire.side_by_side import slot_of
from p4reduce_runtime.records import zeros

SAME_CORRUPT_ANSWERS: Final = 3
"""Number of equal wrong sums, in answers to as many sends, after which the switch is at fault and not the path."""
FEW_SUMS: Final = 1 << 16
"""Words for sums whose memory is made before the opening frames leave: they wait for more."""
_NO_WORDS: Final = np.zeros(0, np.uint32)
_NO_FRAMES: Final = zeros(Received, 0)


class Collective:
    """One rank's side of one collective.

    `records` are in use until it is done; `begin_again` then makes it the next one of the same blocks. `proposal` is
    the window that this rank asks for in the next collective. Only with `keep_words` it has `sums`; else they are
    decoded on arrival.
    """

    def __init__(
        self,
        records: Records,
        blocks: Blocks,
        call: Call,
        timeout_s: float,
        *,
        number: int | None = None,
        limit_s: float | None = None,
        proposal: int | None = None,
        keep_words: bool = False,
    ) -> None:
        """`number`, `limit_s`: those of this call, where `call` is of an earlier one alike."""
        self._kernels, self.records, self._lease = records.kernels, records, records.lease
        self.blocks, self._keeps_words = blocks, keep_words
        self._layout = layout = blocks.layout(keep_words=keep_words)
        self._early: dict[int, Datagram] = {}
        """Slot -> its opening RESULT that came before slot 0's, which shows whether all ranks take part."""
        self._corrupt: dict[int, bytes] = {}
        """Slot -> its last RESULT that cannot be right."""
        self._received = _NO_FRAMES
        self._state, self._loss = records.state, records.loss
        self.stats = records.stats
        self._makes_room_at_once = layout.sums_words <= FEW_SUMS
        self._fields = (*records.arrays, layout.table, layout.scales, layout.units, blocks.nonzero, blocks.exponents)
        """The fields of an Engine that all collectives of these blocks have, in its order."""
        self.agreed_exponents: NDArray[np.uint8] = np.empty(blocks.n_blocks, np.uint8)
        """[blocks]: the exponent agreed for each block, UNTOUCHED where no rank held it."""
        self._without_data = self._engine_of(_NO_WORDS, _NO_WORDS)
        self.begin_again(call, timeout_s, call.number if number is None else number, limit_s, proposal)

    def begin_again(
        self, call: Call, timeout_s: float, number: int, limit_s: float | None = None, proposal: int | None = None
    ) -> None:
        """Begin another collective, with the data that the blocks have now; see `__init__`.

        Not after an error, a refusal, or with words that are kept. The last one's `call`, `agreed_exponents` and counts
        are overwritten.
        """
        records, layout = self.records, self._layout
        self._call, self._number, self._limit_s, self._timeout_s = call, number, limit_s, timeout_s
        self.deadline = 0.0
        """The time at which `on_timer` raises CollectiveTimeoutError."""
        self.refusals: dict[int, Reason] = {}
        """The ranks that cannot take part, known after slot 0's opening round. If there are any, no block is sent."""
        self._unsent: list[bytes] = []
        self._done = False
        self._proposal = records.window if proposal is None else min(proposal, self._lease.slot_count)
        if records.call is not call:
            records.describe(call)
        records.begin(number, self._proposal, min(MAX_PTO_S, timeout_s / 4))
        self._slots: Array = records.slots
        self._early.clear()
        self._corrupt.clear()
        self._has_room = self._makes_room_at_once
        """Whether `sums` is as long as it must be; that may take milliseconds, in which the opening frames travel."""
        room = layout.make_room(dense=False) if self._has_room else _NO_WORDS
        self.engine = self._engine_of(layout.elements, room)
        """The state as the kernels work on it."""

    def _engine_of(self, elements: Array, sums: Array) -> Engine:
        blocks = self.blocks
        own: tuple[Any, ...] = (elements, blocks.holders, blocks.published, blocks.begins, sums, self.agreed_exponents)
        return Engine(*self._fields, *own)

    @property
    def call(self) -> Call:
        """The call, as errors describe it."""
        limit_s = self._call.limit_s if self._limit_s is None else self._limit_s
        return replace(self._call, number=self._number, limit_s=limit_s)

    @property
    def done(self) -> bool:
        """Whether every slot has its last RESULT. Once it is, the records may serve another collective."""
        self._done = self._done or not self._state["open_slots"]
        return self._done

    @property
    def next_window(self) -> int:
        """Known after the opening round: the smallest window any rank proposed for the next collective."""
        return int(self._state["next_window"])

    @property
    def slots(self) -> int:
        """Number of slots of the lease that this collective has opened."""
        return int(self._state["slots"])

    def waiting(self, now: float) -> WaitingSlot | None:
        """Return the slot that waits longest; None if none does. May be called from another thread."""
        slots = self._slots.copy()  # flatnonzero raises RuntimeError where a kernel changes what it counts
        waiting = np.setdiff1d(np.flatnonzero(slots["frame_bytes"]), list(self._early))
        if not len(waiting):
            return None
        oldest = int(waiting[slots["sent_at"][waiting].argmin()])
        seen, level = int(slots["seen"][oldest]), int(slots["seen_level"][oldest])
        levels = self._lease.switches[slots["switch"][oldest]].levels
        missing = 0 if seen < 0 else levels[level].full & ~seen
        waited_s = max(0.0, now - float(slots["sent_at"][oldest]))
        return WaitingSlot(oldest, int(slots["round_number"][oldest]), missing, waited_s, len(waiting), level)

    def obstacle(self) -> Obstacle:
        """Return why the collective does not go on."""
        state, numbers = self._state, np.setdiff1d(np.flatnonzero(~self._slots["done"]), list(self._early))
        slots = self._slots[numbers]
        fields = zip(*(slots[name].tolist() for name in ("switch", "seen", "seen_level", "expected")), strict=True)
        open_slots = [OpenSlot(switch, None if seen < 0 else seen, *rest) for switch, seen, *rest in fields]
        names = ("foreign_at_progress", "malformed_at_progress", "stale_at_progress")
        heard = [int(state[name]) for name in names]
        longest = int(state["longest_result"])
        return obstacle(self._lease, open_slots, longest, self.stats, (heard[0], heard[1], heard[2]))

    @property
    def next_timer(self) -> float | None:
        """When `on_timer` has to be called next; None once the collective is done."""
        return None if self.done else min(float(self._loss["timer_at"].min()), self.deadline)

    def copy(self) -> float:
        """Copy what can be copied now; return for how many seconds not to call this again."""
        if self.blocks.copy is None:
            return math.inf
        return self.blocks.copy(self) if self._loss["largest_sent"].any() else 0.0  # the opening frames leave first

    @property
    def waits_for_blocks(self) -> int:
        """Number of blocks that the ranks of this host have to publish before this one can go on; 0: it can."""
        return int(self._state["needed"]) if self._state["contributions"] else 0

    @property
    def finished_blocks(self) -> int:
        """Number of blocks, from the first one on, that are summed."""
        last = self._slots["last_blocks"][:, : self._lease.columns]
        return max(0, min(int(last.min()), self.blocks.n_blocks))

    @property
    def sums(self) -> NDArray[np.int32]:
        """[blocks, block_words]: the words as summed so far, where the collective keeps words."""
        sums: NDArray[np.int32] = self.engine.sums.view(np.int32).reshape(-1, self._lease.block_words)
        return sums

    def result(self) -> list[Any]:
        """Return the result of each part; RuntimeError before `done`, and when a rank refused.

        Of a collective that its records keep for a later one, once only: it then lets go of the caller's memory.
        """
        if not self.done or self.refusals:
            raise RuntimeError(f"{self.call} {'was refused' if self.refusals else 'is not done'}")
        if self.engine is self._without_data:
            raise RuntimeError(f"the result of {self.call} was returned before")
        if self._keeps_words:
            return self.blocks.decode(self.sums, self.agreed_exponents)
        sums = self.engine.sums
        if self.records.collective is self:
            self.engine = self._without_data
        return self._layout.finish(sums, self.agreed_exponents)

    def start(self, now: float) -> list[bytes]:
        """Return the opening frame of every slot."""
        self.begin(now)
        self._kernels.begin(self.engine, now)
        if not self._has_room:
            self._make_room()
        return self._contribute(self.engine, now)

    def answered_frame(self, switch: int) -> bytes:
        """Return the last frame of a slot of the switch; once the collective is done it was answered. b"": none was."""
        if not self._loss["largest_sent"][switch]:
            return b""
        opened = np.flatnonzero(self._slots["packet_number"] * (self._slots["switch"] == switch))
        frame: bytes = self.engine.frames[opened[0]].tobytes()
        return frame[: self._lease.geometry.lengths[frame[PRESENT_BYTE]]]

    def begin(self, now: float) -> None:
        """Do as `start`, but leave the opening frames to the first `run`."""
        self.deadline = now + self._timeout_s

    def run(self, channel: Channel, until: float) -> list[bytes]:
        """Take part over a socket, until it is done or the monotonic clock reaches `until`, or the deadline.

        Return what the caller has to send. Raises CollectiveError.
        """
        pump, event, until = channel.pump, None, min(until, self.deadline)
        if not self._has_room:
            channel.make_room(len(self._slots))
            pump.run(channel.sockets, self.engine, 0.0)  # which sends the opening frames
            self._make_room()
        while event != pump.PAUSE and not self._unsent:
            channel.make_room(len(self._slots))
            event = pump.run(channel.sockets, self.engine, until)
            if event == pump.RELEASE:
                self._release(time.monotonic())
            elif event != pump.PAUSE:
                place = int(self._state["next_received"]) - (event != COMPARE_CALLS)
                payload = _payload(channel.sockets.ring, channel.sockets.received[place])
                self._handle(event, payload, time.monotonic())
        unsent, self._unsent = self._unsent, []
        return unsent

    def _make_room(self) -> None:
        self._has_room = True
        self._replace(sums=self._layout.make_room(dense=not self.records.config["sparse"][0]))

    def receive(self, frame: bytes, now: float) -> list[bytes]:
        """Take in one datagram; return what to send."""
        return self.receive_burst((frame,), now)

    def receive_burst(self, frames: Iterable[bytes], now: float) -> list[bytes]:
        """Take in several datagrams; return what to send."""
        self._receive(list(frames), now)
        if self._early and not self._slots[0]["opening"]:
            self._release(now)
        unsent, self._unsent = self._unsent, []
        return unsent + self._contribute(self.engine, now)

    def on_timer(self, now: float) -> list[bytes]:
        """Return the frames that were not answered in time, to be sent again.

        CollectiveTimeoutError at the deadline.
        """
        if self.done:
            return []
        if now >= self.deadline:
            raise too_late(self.call, self._timeout_s, self.obstacle())
        if self.waits_for_blocks:
            return []
        return self._frames_of(self.engine, self._kernels.on_loss_detection_timeout(self.engine, now))

    def _replace(self, **arrays: Array) -> None:
        """Work on other arrays in the place of these."""
        self.engine = self.engine._replace(**arrays)
        self._slots = arrays.get("slots", self._slots)

    def _receive(self, payloads: Sequence[bytes], now: float) -> None:
        state = self._state
        data = self._load(payloads)
        received = self._received
        while (event := self._kernels.receive(self.engine, data, received, now)) != END:
            place = int(state["next_received"]) - (event != COMPARE_CALLS)
            self._handle(event, _payload(data, self._received[place]), now)
        state["received"] = state["next_received"] = 0

    def _handle(self, event: int, payload: Datagram, now: float) -> None:
        """Handle the event for which `receive` stopped."""
        number = int.from_bytes(payload[SLOT_BYTES], "big")
        index = slot_of(payload.switch, number, len(self._loss), self._lease.slots_together)
        if event == COMPARE_CALLS:
            self._compare_calls(payload, now)
        elif event == HOLD_BACK:
            self._early[index] = payload
            self._state["early_results"] = len(self._early)
        else:
            self._count_corrupt(index, payload)

    def _release(self, now: float) -> None:
        """Take in the opening RESULTs that had to wait for slot 0's."""
        early = list(self._early.values())
        self._early.clear()
        self._state["early_results"] = 0
        self._receive(early, now)

    def _load(self, payloads: Sequence[bytes]) -> NDArray[np.uint32]:
        """Lay the burst's frames out for the kernels, each at a whole word; return the words."""
        count = len(payloads)
        if len(self._received) < count:
            self._received = zeros(Received, count)
        lengths = np.fromiter(map(len, payloads), np.int64, count)
        words = (lengths + 3) >> 2
        self._received["start"][:count] = np.cumsum(words) - words
        self._received["length"][:count] = lengths
        self._received["switch"][:count] = [switch_of(payload) for payload in payloads]
        self._state["received"], self._state["next_received"], self._state["calls_compared"] = count, 0, False
        if (lengths & 3).any():
            payloads = [payload + bytes(-len(payload) % 4) for payload in payloads]
        return np.frombuffer(b"".join(payloads) or bytes(4), np.uint32)

    def _compare_calls(self, payload: bytes, now: float) -> None:
        blocks, words = payload[self._lease.geometry.frame_header_bytes :], self.call.words(self._proposal)
        try:
            self.refusals, self._state["next_window"] = read_calls(self._lease, blocks, words)
        except CollectiveMismatchError as error:
            raise CollectiveMismatchError(error.calls, self.call.layout) from None
        self._state["calls_compared"] = True
        if self.refusals:
            self._state["refused"] = True
            self._open_all(now)

    def _open_all(self, now: float) -> None:
        """After a refusal: open every slot of the window that this rank has not opened.

        Other ranks may have opened any of them, and a slot's rounds go in lock step: the opening round has to end.
        """
        self.stats.refused += 1
        before, state, records = self.slots, self._state, self.records
        slots, frames = new_slots(self._lease, records.window - before, records.stride, before)
        slots["round_number"], slots["keys"] = records.rounds[before : records.window], KEY_NONE
        opened, pending = zeros(NextFrame, len(slots)), state["contributions"]
        contributions: Any = self.engine.contributions
        opened["slot"] = range(before, before + len(slots))
        self._replace(
            slots=joined(Slot, self._slots[:before], slots),
            frames=np.concatenate([self.engine.frames[:before], frames]),
            contributions=joined(NextFrame, contributions[:before], opened),
        )
        state["slots"] += len(slots)
        state["open_slots"] += len(slots)
        state["contributions"] = len(slots)
        self._unsent += self._contribute(self.engine._replace(contributions=opened), now)
        state["contributions"] = pending

    def _contribute(self, engine: Engine, now: float) -> list[bytes]:
        """Make the frames of the slots in `contributions` and return them; none if their blocks are not there."""
        count = int(self._state["contributions"])
        self._kernels.contribute(engine, now)
        return [] if self.waits_for_blocks else self._frames_of(engine, count)

    def _frames_of(self, engine: Engine, count: int) -> list[bytes]:
        """Return what the first slots in `contributions` sent last."""
        contributions: Any = engine.contributions
        indices = contributions["slot"][:count]
        lengths = self._slots["frame_bytes"][indices].tolist()
        room = 4 * engine.frames.shape[1]
        frames = engine.frames.data.cast("B")
        starts, switches = (indices * room).tolist(), self._slots["switch"][indices].tolist()
        return [
            Datagram(bytes(frames[start : start + length]), switch)
            for start, length, switch in zip(starts, lengths, switches, strict=True)
        ]

    def _count_corrupt(self, index: int, payload: bytes) -> None:
        """Count a RESULT that cannot be right as lost.

        CorruptSumError if repeating the contribution changes nothing.
        """
        slot = self._slots[index]
        if not slot["corrupt_results"] or payload != self._corrupt[index]:
            self._corrupt[index] = payload
            slot["corrupt_results"] = 1
        elif slot["retransmits"] != slot["corrupt_retransmits"]:  # not a copy that the network made
            slot["corrupt_results"] += 1
        slot["corrupt_retransmits"] = slot["retransmits"]
        if slot["corrupt_results"] >= SAME_CORRUPT_ANSWERS:
            raise CorruptSumError(self._lease.name, index, int(slot["round_number"]), int(slot["corrupt_results"]))


def _payload(data: NDArray[np.uint32], received: Any) -> Datagram:
    """Return a frame of a burst."""
    start, length = int(received["start"]), int(received["length"])
    return Datagram(data[start : start + (length + 3 >> 2)].tobytes()[:length], int(received["switch"]))
