"""Frames a second of our program in each executor, in one process and without I/O."""

from __future__ import annotations

from functools import partial

from p4reduce_contracts import artifacts
from p4reduce_controller.config import SwitchConfig
from p4reduce_lab.bench.batches import BATCH, Runner
from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.load import Contributions, ethernet_addresses, make_grant, program
from p4reduce_lab.bench.numbers import in_turn
from p4reduce_switch.program import load
from p4reduce_switch.program.registry import executors

PYTHON, COMPILED = "python", "llvm"
WORLD_SIZE = 4
_FRAMES = {PYTHON: 1024, COMPILED: 64 * 1024}
SPEED_UP = Threshold("compiled / Python executor, frames/s of our program, hot", 50)


def measure(run: Run) -> None:
    """Run the same frames through all executors in turn: one batch of slots, so that all is in the caches."""
    runners = {name: runner for name in executor_names(run) if (runner := prepare(run, name)) is not None}
    found = in_turn(
        {name: partial(runner.cpu_seconds, _FRAMES.get(name, 4096)) for name, runner in runners.items()},
        run.repetitions,
    )
    for name, runner in runners.items():
        what = f"full frames, {WORLD_SIZE} ranks, hot, {runner.how}"
        rates = [1 / seconds for seconds in found[name]]
        counted = {"CPU ns a frame": 1e9 / sorted(rates)[len(rates) // 2]}
        run.add(Series(what, name, "in one process", "frames/s a core", rates, {"executor": name}, counted))
    if COMPILED in found and PYTHON in found:
        run.ratio(SPEED_UP.name, found[PYTHON], found[COMPILED])


def executor_names(run: Run) -> list[str]:
    """Return the executors there are, Python's first; says so where the compiled one is missing."""
    if COMPILED not in executors:
        run.skip(f"executor {COMPILED}", f"there is none of that name; there are {', '.join(executors)}")
    return sorted(executors, key=lambda name: name != PYTHON)


def prepare(
    run: Run, name: str, world_size: int = WORLD_SIZE, slots: int | None = None, geometry: str = "default"
) -> Runner | None:
    """Load our program into an executor with a job's entries, and warm it up; None, and said, where it cannot."""
    folder = artifacts.find(geometry)
    shape, switch = artifacts.geometry(folder), SwitchConfig()
    try:
        executor = load((folder / artifacts.PROGRAM).read_bytes(), name)
    except Exception as error:  # an executor may need what is not installed; the others are still measured
        run.skip(f"executor {name}", f"it does not load: {error}")
        return None
    slots = BATCH // world_size if slots is None else slots
    grant = make_grant(ethernet_addresses(world_size), slots)
    program(executor, grant, switch)
    frames = Contributions(shape, grant, switch, encapsulated=True, rounds=max(1, BATCH // (slots * world_size)))
    runner = Runner(executor, frames)
    runner.cpu_seconds(2 * len(frames))
    if runner.results != 2 * len(frames):  # every rank gets a RESULT of each round
        raise AssertionError(f"executor {name} answered {2 * len(frames)} frames with {runner.results}")
    return runner


CASE = Case("executors", "frames/s of our program in each executor, hot, without I/O", measure, thresholds=(SPEED_UP,))
