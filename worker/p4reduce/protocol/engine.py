"""One collective, without I/O: (frame | timer, now) in, frames out.

Frames are UDP payloads. Every slot used walks through rounds: an opening round that carries keys
only (and, in slot 0, every rank's call descriptor), then one round per set of agreed blocks, until
no rank holds a further block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CorruptSumError, FrameError, Reason
from p4reduce.protocol.call import Call, compare_calls, opening_block, opening_columns, read_opening
from p4reduce.protocol.deadline import Obstacle, obstacle, refused_frames, too_late
from p4reduce.protocol.growth import with_zero_blocks, zero_blocks
from p4reduce.protocol.lookahead import keys_at_or_after
from p4reduce.protocol.recovery import Recovery
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.slot import COLUMN_DONE, SlotState
from p4reduce.protocol.source import UNTOUCHED, BlockSource, check_size, largest_sums
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import CONTRIBUTE, KEY_NONE, PENDING, ROUND_MASK, Frame, pack, unpack
from p4reduce_contracts.wire.check import check_of, checks_of

SAME_CORRUPT_ANSWERS: Final = 3
"""So often the same wrong sum, each time in answer to another send: it is the switch's, not the path's."""


class Collective:
    """One rank's side of one collective.

    `slot_rounds` (one 32-bit round number per slot of the lease) lives as long as the epoch; the
    collective advances it. `window` is how many slots may be used, equal on all ranks; `proposal`
    is the window this rank would like for the next collective. `refusal_window` is how many slots are opened when
    a rank refuses, equal on all ranks whatever they called.
    """

    def __init__(
        self,
        lease: Lease,
        slot_rounds: list[int],
        source: BlockSource,
        call: Call,
        timeout_s: float,
        *,
        round_trip: RoundTrip | None = None,
        window: int | None = None,
        proposal: int | None = None,
        stats: CollectiveStats | None = None,
        refusal_window: int | None = None,
    ) -> None:
        check_size(source)
        self.call = call
        self.stats = CollectiveStats() if stats is None else stats
        self._lease, self._geometry = lease, lease.geometry
        self._source = source
        self._rounds = slot_rounds
        self._timeout_s = timeout_s
        self._deadline = 0.0
        self._heard = refused_frames(self.stats)
        """The frames refused when the last answer came that was of use."""
        self._longest_result = 0
        """Bytes of the longest RESULT that came."""
        self._round_trip = RoundTrip() if round_trip is None else round_trip
        columns = lease.columns
        limit = min(window or lease.slot_count, lease.slot_count)
        count = max(1, min(limit, -(-source.n_blocks // columns)))
        self._stride = columns * count
        self._keys = keys_at_or_after(source.nonzero, source.exponents, self._stride)
        self._slots = [SlotState(i, slot_rounds[i], columns, 0) for i in range(count)]
        self._slots[0].expected = (1 << opening_columns(lease.world_size, lease.block_words)) - 1
        self._open = count
        self._refusal_window = max(count, min(refusal_window or limit, lease.slot_count))
        self._early: dict[int, tuple[bytes, Frame, int]] = {}
        """By slot: opening RESULTs that overtook slot 0's, which says whether all ranks take part."""
        self._unsent: list[bytes] = []
        self._recovery = Recovery(self._round_trip, timeout_s / 4)
        self._words = call.words(limit if proposal is None else min(proposal, lease.slot_count))
        self.next_window = limit
        """Known after the opening round: the smallest window any rank proposed for the next collective."""
        self.refusals: dict[int, Reason] = {}
        """Known after slot 0's opening round: the ranks that cannot take part. With any, no block is sent."""
        self._sums = np.zeros((source.n_blocks, lease.block_words), ">i4")
        self._sum_bytes = self._sums.data.cast("B") if source.n_blocks else memoryview(bytearray())
        self._agreed = bytearray([UNTOUCHED]) * source.n_blocks
        self._largest_sums = largest_sums(source)

    @property
    def done(self) -> bool:
        """Whether every slot has its last RESULT."""
        return not self._open

    @property
    def slots(self) -> int:
        """How many slots of the lease this collective uses."""
        return len(self._slots)

    def waiting(self, now: float) -> WaitingSlot | None:
        """Return the slot that waits longest; None if none does. May be called from another thread."""
        waiting = [slot for slot in list(self._slots) if not slot.done and slot.frame]
        if not waiting:
            return None
        oldest = min(waiting, key=lambda slot: slot.sent_at)
        seen = oldest.seen
        missing = 0 if seen is None else self._lease.full & ~seen
        return WaitingSlot(oldest.index, oldest.round, missing, max(0.0, now - oldest.sent_at), len(waiting))

    def obstacle(self) -> Obstacle:
        """Return why the collective does not go on."""
        open_slots = [(slot.seen, slot.expected) for slot in self._slots if not slot.done]
        return obstacle(self._lease, open_slots, self._longest_result, self.stats, self._heard)

    @property
    def next_timer(self) -> float | None:
        """When `on_timer` wants to be called next; None once the collective is done."""
        if not self._open:
            return None
        timer = self._recovery.next_timer
        return self._deadline if timer is None else min(timer, self._deadline)

    @property
    def agreed_exponents(self) -> NDArray[np.uint8]:
        """[blocks]: the exponent agreed for each block, UNTOUCHED where no rank held it."""
        return np.frombuffer(self._agreed, np.uint8)

    @property
    def sums(self) -> NDArray[np.int32]:
        """[blocks, block_words]: the big-endian words as summed so far, zero where no rank held the block."""
        return self._sums

    def result(self) -> list[NDArray[Any]]:
        """Return the summed tensors; RuntimeError before `done`, and when a rank refused."""
        if self._open or self.refusals:
            raise RuntimeError(f"{self.call} {'was refused' if self.refusals else 'is not done'}")
        return self._source.decode(self._sums, self.agreed_exponents)

    def start(self, now: float) -> list[bytes]:
        """Return the opening frame of every slot."""
        self._deadline = now + self._timeout_s
        columns, frames = self._lease.columns, []
        for slot in self._slots:
            first = slot.index * columns
            slot.keys = tuple(self._keys[first : first + columns])
            present, block = 0, b""
            if slot.index == 0:
                column, block = opening_block(self._words, self._lease.rank, self._lease.block_words)
                present = 1 << column
            check = check_of(present, block, self._lease.block_words)
            frames.append(self._contribute(slot, present, block, check, now))
        self._recovery.start(now)
        return frames

    def receive(self, frame: bytes, now: float) -> list[bytes]:
        """Take in one datagram; return what to send."""
        return self.receive_burst((frame,), now)

    def receive_burst(self, frames: Iterable[bytes], now: float) -> list[bytes]:
        """Take in several datagrams; return what to send, the blocks of all the answers encoded at once."""
        answers: list[tuple[SlotState, int, int, int]] = []
        blocks: list[int] = []
        exponents = bytearray()
        waiting = deque(self._read(frames))
        while waiting:
            slot = self._accept(*waiting.popleft(), now)
            if self._early and not self._slots[0].opening:
                waiting.extend(self._early.values())
                self._early.clear()
            if slot is None:
                continue
            present = self._choose(slot, blocks, exponents)
            zeros = zero_blocks(slot.expected, present, self._geometry.block_bytes)
            answers.append((slot, present, zeros, len(blocks)))
        unsent, self._unsent = self._unsent, []
        return unsent + self._answer(answers, blocks, exponents, now) if answers else unsent

    def on_timer(self, now: float) -> list[bytes]:
        """Return the frames that were not answered in time, to be sent again.

        CollectiveTimeoutError at the deadline.
        """
        if not self._open:
            return []
        if now >= self._deadline:
            raise too_late(self.call, self._timeout_s, self.obstacle())
        frames = []
        for slot in self._recovery.due(now):
            self.stats.retransmissions += 1
            frames.append(slot.frame)
        return frames

    def _read(self, payloads: Iterable[bytes]) -> Iterable[tuple[bytes, Frame, int]]:
        """The frames that are for this rank, each with the check word that its blocks should have."""
        lease, stats = self._lease, self.stats
        kept: list[bytes] = []
        frames: list[Frame] = []
        for payload in payloads:
            try:
                frame = unpack(self._geometry, payload)
            except FrameError:
                stats.malformed += 1
                continue
            ours = frame.job == lease.job_id and frame.epoch == lease.epoch and frame.secret == lease.secret
            if not ours or frame.type == CONTRIBUTE:
                stats.foreign += 1
                continue
            kept.append(payload)
            frames.append(frame)
        blocks = b"".join([frame.blocks for frame in frames])
        checks = checks_of([frame.present for frame in frames], blocks, lease.block_words)
        return zip(kept, frames, checks, strict=True)

    def _accept(self, payload: bytes, frame: Frame, right_check: int, now: float) -> SlotState | None:
        """Store the sums of a RESULT this rank waits for; return the slot, if it goes on."""
        stats = self.stats
        frame_type, _, present, _, index, round_, seen, _, check, keys, data = frame
        slot = self._slots[index] if index < len(self._slots) else None
        if slot is None or not slot.frame or round_ != slot.round:  # done, or nothing is sent that this may answer
            stats.stale += 1
            return None
        if frame_type == PENDING:
            stats.pendings += 1
            slot.seen = seen
            self._heard = refused_frames(stats)
            return None
        if present != slot.expected or seen != self._lease.full:
            stats.malformed += 1
            return None
        if check != right_check or self._is_beyond(slot, data):
            self._count_corrupt(slot, payload)
            return None
        if slot.opening and index == 0:
            self._compare_calls(data)  # first: between different calls the keys make no sense
            if self.refusals:
                self._open_all(now)
        elif slot.opening and self._slots[0].opening and self._plausible(slot, keys):
            self._early[index] = payload, frame, right_check
            self._recovery.answered(slot, now)
            return None
        if self.refusals:
            self._recovery.answered(slot, now)
            self._finish_refused(slot)
            return None
        if not self._plausible(slot, keys):
            stats.malformed += 1
            return None
        if not slot.opening:  # the wait in an opening round is for late ranks, and says nothing of the path
            self._store(slot, data)
            stats.losses += slot.tries > 0 and slot.seen is None
        self._recovery.answered(slot, now)
        stats.rounds += 1
        self._heard = refused_frames(stats)
        self._longest_result = max(self._longest_result, len(payload))
        self._rounds[index] = slot.round = (round_ + 1) & ROUND_MASK
        slot.keys = keys
        return slot if self._advance(slot) else None

    def _is_beyond(self, slot: SlotState, data: bytes) -> bool:
        """Return whether a word of these blocks is larger than the ranks' words can add up to."""
        if slot.opening:
            return False
        words = np.frombuffer(data, ">i4").reshape(-1, self._lease.block_words)
        return bool((np.abs(words.astype(np.int64)).max(axis=1) > self._largest_sums[slot.blocks]).any())

    def _count_corrupt(self, slot: SlotState, payload: bytes) -> None:
        """A RESULT that cannot be right counts as lost.

        CorruptSumError if repeating the contribution changes nothing.
        """
        self.stats.corrupt += 1
        if payload != slot.corrupt:
            slot.corrupt, slot.corrupt_answers = payload, 1
        elif slot.tries != slot.corrupt_try:  # not a copy that the network made
            slot.corrupt_answers += 1
        slot.corrupt_try = slot.tries
        if slot.corrupt_answers >= SAME_CORRUPT_ANSWERS:
            raise CorruptSumError(self._lease.name, slot.index, slot.round, slot.corrupt_answers)

    def _plausible(self, slot: SlotState, keys: tuple[int, ...]) -> bool:
        """Return whether agreed keys are no later than this rank's own and stay in their column."""
        stream = slot.index * len(keys)
        stride, limit = self._stride, len(self._agreed)
        for column, (key, own) in enumerate(zip(keys, slot.keys, strict=True)):
            if key > own:
                return False
            if key != KEY_NONE:
                block = key >> 8
                if block <= slot.floors[column] or block >= limit or block % stride != stream + column:
                    return False
                if not key & 255:  # exponent 255 stands for Inf and NaN, nobody sends it
                    return False
        return True

    def _store(self, slot: SlotState, data: bytes) -> None:
        blocks = slot.blocks
        size = self._geometry.block_bytes
        first, count = blocks[0], len(blocks)
        if blocks == list(range(first, first + count)):
            self._sum_bytes[first * size : (first + count) * size] = data
            self._agreed[first : first + count] = slot.exponents
        else:
            for i, block in enumerate(blocks):
                self._sum_bytes[block * size : (block + 1) * size] = data[i * size : (i + 1) * size]
                self._agreed[block] = slot.exponents[i]
        self.stats.blocks_down += count

    def _advance(self, slot: SlotState) -> bool:
        """Move on to the blocks the keys of a RESULT name; return False when the slot is finished."""
        slot.opening, slot.frame = False, b""
        blocks, exponents, expected = [], bytearray(), 0
        for column, key in enumerate(slot.keys):
            if key == KEY_NONE:
                slot.floors[column] = COLUMN_DONE
                continue
            block = key >> 8
            slot.floors[column] = block
            blocks.append(block)
            exponents.append(255 - (key & 255))
            expected |= 1 << column
        if not blocks:
            slot.done = True
            self._open -= 1
            return False
        slot.blocks, slot.exponents, slot.expected = blocks, bytes(exponents), expected
        return True

    def _choose(self, slot: SlotState, blocks: list[int], exponents: bytearray) -> int:
        """Append the agreed blocks this rank holds, set its next keys; return `present`."""
        present, bit, keys = 0, 1, []
        mine, stride = self._keys, self._stride
        for key in slot.keys:
            if key == KEY_NONE:
                keys.append(KEY_NONE)
            else:
                block = key >> 8
                if mine[block] >> 8 == block:
                    present |= bit
                    blocks.append(block)
                    exponents.append(255 - (key & 255))
                keys.append(mine[block + stride])
            bit <<= 1
        slot.keys = tuple(keys)
        return present

    def _answer(
        self,
        answers: list[tuple[SlotState, int, int, int]],
        blocks: list[int],
        exponents: bytearray,
        now: float,
    ) -> list[bytes]:
        data = b""
        if blocks:
            indices = np.array(blocks, np.int64)
            data = self._source.encode(indices, np.frombuffer(exponents, np.uint8)).tobytes()
            self.stats.blocks_up += len(blocks)
        checks = checks_of([present for _, present, _, _ in answers], data, self._lease.block_words)
        frames, start, size = [], 0, self._geometry.block_bytes
        for (slot, present, zeros, last), check in zip(answers, checks, strict=True):
            end = last * size
            own = data[start:end]
            if zeros:
                own = with_zero_blocks(own, present, zeros, size)
            frames.append(self._contribute(slot, present | zeros, own, check, now))
            start = end
        return frames

    def _contribute(self, slot: SlotState, present: int, data: bytes, check: int, now: float) -> bytes:
        lease = self._lease
        place = (lease.job_id, present, lease.epoch, slot.index, slot.round)
        slot.frame = pack(self._geometry, Frame(CONTRIBUTE, *place, 0, lease.secret, check, slot.keys, data))
        slot.tries, slot.moved, slot.seen = 0, False, None
        slot.corrupt, slot.corrupt_answers = b"", 0
        self._recovery.sent(slot, now)
        return slot.frame

    def _compare_calls(self, data: bytes) -> None:
        self.refusals, self.next_window = compare_calls(read_opening(data, self._lease.world_size))

    def _open_all(self, now: float) -> None:
        """After a refusal: open every slot of the window that this rank has not opened.

        Other ranks may have opened any of them, and a slot's rounds go in lock step: the opening round has to end.
        """
        self.stats.refused += 1
        for index in range(len(self._slots), self._refusal_window):
            slot = SlotState(index, self._rounds[index], self._lease.columns, 0)
            slot.keys = (KEY_NONE,) * self._lease.columns
            self._slots.append(slot)
            self._open += 1
            self._unsent.append(self._contribute(slot, 0, b"", 0, now))

    def _finish_refused(self, slot: SlotState) -> None:
        """Take the RESULT of an opening round as the end of its slot: some rank refused."""
        self.stats.rounds += 1
        self._rounds[slot.index] = slot.round = (slot.round + 1) & ROUND_MASK
        slot.opening, slot.done, slot.frame = False, True, b""
        self._open -= 1
