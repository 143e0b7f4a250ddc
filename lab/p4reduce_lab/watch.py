"""`p4reduce demo --watch`: one small sum of four ranks, with a lost frame, recorded as a page and as a picture."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import p4reduce
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_contracts.wire.numbers import BASE_BYTES, GUARD_BYTES, PRESENT_BYTE, RESULT, SLOT_BYTES, TYPE_MASK
from p4reduce_controller.cli.trace_page import recording_of
from p4reduce_lab.demo import compile_ahead
from p4reduce_lab.errors import LabError
from p4reduce_lab.processes import P4REDUCE, Children, terminable
from p4reduce_lab.sum_picture import picture
from p4reduce_lab.system import ANY_PORT, READY_S, ROOT, EmbeddedSwitch, System, new_state_dir, started_controller
from p4reduce_lab.udp_relay import PathConditions, UdpRelay
from p4reduce_runtime import terminal
from p4reduce_runtime.settings import toml_table

RANKS: Final = 4
SLOTS: Final = 2
"""At each switch."""
BLOCKS: Final = 24
BLOCKS_OF_A_RANK: Final = 5
"""The others are zeros: as a gradient of an embedding has only the rows of the words that a rank has seen."""
JOB: Final = "sum"
_HEADER_BYTES = BASE_BYTES + GUARD_BYTES
_LIMIT_S = 60.0
_SEED = 9


def run_watch(out: Path, console: Console | None = None, racks: int = 1, switches: int = 1) -> None:
    """Sum a sparse tensor of 192 float32 over switches that are traced, and write sum.html to `out`, and sum.svg.

    A RESULT with blocks is lost on its way to one rank. With several `racks` the switches form a tree, with several
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
        _lossy_system(children, racks, switches) as (system, names),
        system.job(JOB, RANKS, SLOTS),
        ThreadPoolExecutor(RANKS) as pool,
    ):

        def join(rank: int) -> p4reduce.Communicator:
            switch = names[rank * len(names) // RANKS] if racks > 1 else ""
            return p4reduce.join(JOB, rank=rank, world_size=RANKS, controller=system.controller, switch=switch)

        comms = list(pool.map(join, range(RANKS), timeout=_LIMIT_S))
        command = [*P4REDUCE, "switch", "trace", "--job", JOB, "--html", str(written[0])]
        tracer = children.start("trace", command, {"P4REDUCE_CONTROLLER": system.controller})
        tracer.wait_line(rf"(?:trace on\s*){{{len(system.switches)}}}", READY_S)
        list(pool.map(p4reduce.Communicator.barrier, comms))  # the recording begins behind the end of a collective
        sums = list(pool.map(p4reduce.Communicator.all_reduce, comms, gradients()))
        tracer.wait(_LIMIT_S)
        if tracer.status:
            raise tracer.failure(f"ended with status {tracer.status}")
        children.forget(tracer)
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


@contextmanager
def _lossy_system(children: Children, racks: int, switches: int) -> Iterator[tuple[System, list[str]]]:
    """Start switches and a controller; yield these, and the names of the switches that ranks send to, which lose."""
    root = EmbeddedSwitch(ROOT if racks > 1 else ONLY_SWITCH, ANY_PORT, ANY_PORT, "small")
    wanted = [replace(root, name=f"switch{number}") for number in range(1, switches + 1)] if switches > 1 else [root]
    leaves = [replace(root, name=f"leaf{number}", parent=root) for number in range(1, racks + 1 if racks > 1 else 1)]
    names = [switch.name for switch in leaves or wanted]
    copies: Counter[str] = Counter()
    lost: list[str] = []

    def lose(name: str, way: str, frame: bytes) -> bool:
        """Lose a copy of the first RESULT of a switch's slot 1 that has blocks and asks for others; one in all."""
        slot, keys = int.from_bytes(frame[SLOT_BYTES], "big"), frame[_HEADER_BYTES : SMALL.frame_header_bytes]
        asks = slot == 1 and frame[0] & TYPE_MASK == RESULT and frame[PRESENT_BYTE] and set(keys) != {255}
        if way == "up" or lost or not asks:
            return False
        copies[name] += 1
        lost.extend([name] * (copies[name] == 1 + RANKS // racks // 2))
        return bool(lost)

    with ExitStack() as stack:
        lines, processes = [], []
        started: dict[str, EmbeddedSwitch] = {}
        for switch in [*wanted, *leaves]:
            above = started.get(switch.parent.name) if switch.parent is not None else None
            started[switch.name], child = replace(switch, parent=above).start(children)
            processes.append(child)
            host, _, port = started[switch.name].listen.rpartition(":")
            conditions = PathConditions(chosen=partial(lose, switch.name))
            relay = stack.enter_context(UdpRelay((host, int(port)), conditions, _SEED))
            lines += replace(started[switch.name], listen="{}:{}".format(*relay.address)).table
        lines += toml_table("[controller]", listen=ANY_PORT, state_dir=new_state_dir(children.logs))
        with started_controller(children, processes, lines, insecure=False) as system:
            yield system, names
