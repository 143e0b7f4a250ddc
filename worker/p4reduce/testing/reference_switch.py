"""The switch's side of the protocol in plain Python, as the protocol page states it. For tests only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from p4reduce.errors import FrameError
from p4reduce.protocol.datagram import Datagram, switch_of
from p4reduce_contracts.wire.frames import Frame, pack, unpack
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import CONTRIBUTE, KEY_NONE, MAX_GROWTH_BYTES, PENDING, RESULT, ROUND_MASK


class SwitchSide(Protocol):
    """One switch with all ranks: the reference switch, or a pipeline behind an adapter."""

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]: ...


@dataclass
class Job:
    epoch: int
    world_size: int
    slot_base: int
    slot_count: int
    secrets: tuple[int, ...]


@dataclass
class Cell:
    """One (slot, version): what the registers hold."""

    epoch: int = 0
    round: int = 0
    seen: int = 0
    present: int = 0
    check: int = 0
    keys: list[int] = field(default_factory=list)
    sums: dict[int, np.ndarray] = field(default_factory=dict)


class SideBySide:
    """Switches that each have all ranks, as one: a payload says for or from which it is (protocol/datagram.py)."""

    def __init__(self, *switches: SwitchSide) -> None:
        self.switches = switches

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """Return what its switch answers; what is for one that is not there any more is lost."""
        number = switch_of(payload)
        if number >= len(self.switches):
            return []
        return [(to, Datagram(answer, number)) for to, answer in self.switches[number].process(rank, payload)]


class ReferenceSwitch:
    """`process(rank, payload)` handles a frame that arrived from that rank's port."""

    def __init__(self, geometry: Geometry, slots: int = 1024) -> None:
        self.geometry = geometry
        self.cells = [[Cell(), Cell()] for _ in range(slots)]
        self.jobs: dict[int, Job] = {}
        self.duplicates = 0
        """Number of contributions that came again."""

    def add_job(
        self,
        job: int,
        epoch: int,
        world_size: int,
        slot_base: int = 0,
        slot_count: int = 16,
        secrets: Sequence[int] | None = None,
    ) -> None:
        """Add a job. `secrets` by rank are those of the leases; None: 0, as in a Lease that was given none."""
        self.jobs[job] = Job(epoch, world_size, slot_base, slot_count, tuple(secrets or (0,) * world_size))

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """[(rank, payload)] of everything the switch sends because of this frame."""
        try:
            frame = unpack(self.geometry, payload)
        except FrameError:
            return []
        job = self.jobs.get(frame.job)
        if frame.type != CONTRIBUTE or frame.seen:
            return []
        if job is None or rank >= job.world_size or frame.secret != job.secrets[rank]:
            return []
        if frame.epoch != job.epoch or frame.slot >= job.slot_count:
            return []
        cell = self.cells[job.slot_base + frame.slot][frame.round & 1]
        if (cell.epoch, cell.round) != (frame.epoch, frame.round):
            if cell.epoch == frame.epoch and frame.round != (cell.round + 2) & ROUND_MASK:
                return []
            cell.__init__(frame.epoch, frame.round)  # type: ignore[misc]
            cell.keys = [KEY_NONE] * self.geometry.columns
        duplicate = bool(cell.seen >> rank & 1)
        self.duplicates += duplicate
        if not duplicate:
            self._add(cell, rank, frame)
        full = (1 << job.world_size) - 1
        if cell.seen == full:
            ranks = [rank] if duplicate else range(job.world_size)
            return [(to, self._answer(RESULT, cell, frame, job.secrets[to])) for to in ranks]
        if duplicate:
            return [(rank, self._answer(PENDING, cell, frame, frame.secret))]
        return []

    def _add(self, cell: Cell, rank: int, frame: Frame) -> None:
        cell.seen |= 1 << rank
        cell.check = cell.check + frame.check & 0xFFFFFFFF
        cell.keys = [min(a, b) for a, b in zip(cell.keys, frame.keys, strict=True)]
        size, at = self.geometry.block_bytes, 0
        for column in range(self.geometry.columns):
            if frame.present >> column & 1:
                block = np.frombuffer(frame.blocks, ">u4", self.geometry.block_words, at).astype(np.uint32)
                cell.sums[column] = cell.sums[column] + block if cell.present >> column & 1 else block
                cell.present |= 1 << column
                at += size

    def _answer(self, frame_type: int, cell: Cell, frame: Frame, secret: int) -> bytes:
        present, check, keys, blocks = 0, 0, (KEY_NONE,) * self.geometry.columns, b""
        if frame_type == RESULT:
            present, check, keys = cell.present, cell.check, tuple(cell.keys)
            blocks = b"".join(cell.sums[c].astype(">u4").tobytes() for c in sorted(cell.sums))
        answer = frame._replace(
            type=frame_type, present=present, seen=cell.seen, secret=secret, check=check, keys=keys, blocks=blocks
        )
        packed = pack(self.geometry, answer)
        room = len(pack(self.geometry, frame)) + MAX_GROWTH_BYTES
        assert len(packed) <= room, f"BMv2 would abort: {len(packed)} B in answer to {room - MAX_GROWTH_BYTES} B"
        return packed
