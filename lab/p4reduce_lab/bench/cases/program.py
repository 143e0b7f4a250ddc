"""Frames a second of our program, in one process and without I/O."""

from __future__ import annotations

from functools import partial

from p4reduce_contracts import artifacts
from p4reduce_controller.config import SwitchConfig
from p4reduce_lab.bench.batches import BATCH, Runner
from p4reduce_lab.bench.case import Case, Run, Series
from p4reduce_lab.bench.load import Contributions, ethernet_addresses, make_grant, program
from p4reduce_lab.bench.numbers import in_turn
from p4reduce_switch.program import Program

WORLD_SIZE = 4
EMBEDDED = "embedded switch"
_FRAMES = 64 * 1024


def measure(run: Run) -> None:
    """Run the same frames again and again: one batch of slots, so that all is in the caches."""
    runner = prepare()
    found = in_turn({EMBEDDED: partial(runner.cpu_seconds, _FRAMES)}, run.repetitions)
    what = f"full frames, {WORLD_SIZE} ranks, hot, batches of {BATCH}"
    rates = [1 / seconds for seconds in found[EMBEDDED]]
    counted = {"CPU ns a frame": 1e9 / sorted(rates)[len(rates) // 2]}
    run.add(Series(what, EMBEDDED, "in one process", "frames/s a core", rates, {}, counted))


def prepare(world_size: int = WORLD_SIZE, slots: int | None = None, geometry: str = "default") -> Runner:
    """Load our program with a job's entries, and warm it up."""
    folder = artifacts.find(geometry)
    shape, switch = artifacts.geometry(folder), SwitchConfig()
    loaded = Program((folder / artifacts.PROGRAM).read_bytes())
    slots = BATCH // world_size if slots is None else slots
    grant = make_grant(ethernet_addresses(world_size), slots)
    program(loaded, grant, switch)
    frames = Contributions(shape, grant, switch, encapsulated=True, rounds=max(1, BATCH // (slots * world_size)))
    runner = Runner(loaded, frames)
    runner.cpu_seconds(2 * len(frames))
    if runner.results != 2 * len(frames):  # every rank gets a RESULT of each round
        raise AssertionError(f"the program answered {2 * len(frames)} frames with {runner.results}")
    return runner


CASE = Case("program", "frames/s of our program in the embedded switch, hot, without I/O", measure)
