"""`p4reduce demo --watch`: one small sum of four ranks, with a lost frame, recorded as a page and as a picture."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import p4reduce
from p4reduce.transport import Transport
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_contracts.wire.numbers import BASE_BYTES, GUARD_BYTES, PRESENT_BYTE, RESULT, SLOT_BYTES, TYPE_MASK
from p4reduce_controller.cli.trace_page import recording_of
from p4reduce_lab.demo import compile_ahead
from p4reduce_lab.errors import LabError
from p4reduce_lab.processes import P4REDUCE, Children, terminable
from p4reduce_lab.sum_picture import picture
from p4reduce_lab.system import READY_S, running_system
from p4reduce_runtime import terminal

RANKS: Final = 4
SLOTS: Final = 2
"""At each switch."""
BLOCKS: Final = 24
BLOCKS_OF_A_RANK: Final = 5
"""The others are zeros: as a gradient of an embedding has only the rows of the words that a rank has seen."""
LOSES: Final = 2
"""The rank that loses a frame."""
JOB: Final = "sum"
_HEADER_BYTES = BASE_BYTES + GUARD_BYTES
_LIMIT_S = 60.0
_SEED = 9


def run_watch(out: Path, console: Console | None = None, racks: int = 1, switches: int = 1) -> None:
    """Sum a sparse tensor of 192 float32 over switches that are traced, and write sum.html to `out`, and sum.svg.

    One rank loses a RESULT with blocks. With several `racks` the switches form a tree, with several
    `switches` they are side by side; then there is no sum.svg. Raises LabError; all processes it started have ended
    when it returns or raises.
    """
    console = console or terminal.console(markup=True)
    logs = out / "sum-logs"
    logs.mkdir(parents=True, exist_ok=True)
    compile_ahead(console)
    os.environ["P4REDUCE_HOSTS"] = "off"  # the ranks of one machine are to use the switch
    os.environ["P4REDUCE_SEGMENTATION"] = "off"  # no repeated frames, by which a rank asks whether the path takes GSO
    written = [out / "sum.html"]
    with (
        terminable(),
        Children(logs) as children,
        running_system(children, "small", racks, switches) as system,
        system.job(JOB, RANKS, SLOTS),
        ThreadPoolExecutor(RANKS) as pool,
    ):

        def join(rank: int) -> p4reduce.Communicator:
            switch = system.switch_of(rank, RANKS)
            comm = p4reduce.join(JOB, rank=rank, world_size=RANKS, controller=system.controller, switch=switch)
            if rank == LOSES:
                path = comm.over_switch
                path.close_channel()
                comm.path = path.renewed(comm.lease, Losing(path.transport))
            return comm

        comms = list(pool.map(join, range(RANKS), timeout=_LIMIT_S))
        command = [*P4REDUCE, "switch", "trace", "--job", JOB, "--html", str(written[0])]
        tracer = children.start("trace", command, {"P4REDUCE_CONTROLLER": system.controller})
        tracer.wait_line(rf"(?:trace on\s*){{{len(system.switches)}}}", READY_S)
        list(pool.map(p4reduce.Communicator.barrier, comms))  # the recording begins behind the end of a collective
        sums = list(pool.map(p4reduce.Communicator.all_reduce, comms, gradients()))
        tracer.wait(_LIMIT_S)
        if tracer.status:
            raise tracer.failure(f"ended with status {tracer.status}")
        list(pool.map(p4reduce.Communicator.close, comms))
    if any((each != sums[0]).any() for each in sums):
        raise LabError("the ranks have different sums")
    if len(system.switches) == 1:
        written.append(out / "sum.svg")
        written[1].write_text(picture(recording_of(written[0].read_text(encoding="utf-8"))), encoding="utf-8")
    files = " and ".join(map(str, written))
    console.print(f"{files} written: a sum in slow motion, with a lost frame; open it in a browser", soft_wrap=True)


def gradients() -> list[NDArray[np.float32]]:
    """Return each rank's tensor: numbers that float32 and a sheet of paper hold, most blocks zeros."""
    drawn = np.random.default_rng(_SEED)
    tensors = np.zeros((RANKS, BLOCKS, SMALL.block_words), np.float32)
    for tensor in tensors:
        rows = drawn.choice(BLOCKS, BLOCKS_OF_A_RANK, replace=False)
        tensor[rows] = drawn.integers(-4, 5, (BLOCKS_OF_A_RANK, SMALL.block_words)) / 2
    return list(tensors.reshape(RANKS, -1))


class Losing:
    """A transport that loses the first RESULT of slot 1 which has blocks and asks for others."""

    def __init__(self, transport: Transport) -> None:
        self._transport, self._has_lost = transport, False
        self.send, self.close = transport.send, transport.close

    def receive(self, timeout_s: float) -> list[bytes]:
        """Return what has arrived, without that frame."""
        return [frame for frame in self._transport.receive(timeout_s) if not self._loses(frame)]

    def _loses(self, frame: bytes) -> bool:
        slot, keys = int.from_bytes(frame[SLOT_BYTES], "big"), frame[_HEADER_BYTES : SMALL.frame_header_bytes]
        asks = slot == 1 and frame[0] & TYPE_MASK == RESULT and frame[PRESENT_BYTE] and set(keys) != {255}
        loses, self._has_lost = bool(asks) and not self._has_lost, self._has_lost or bool(asks)
        return loses
